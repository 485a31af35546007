package machine

import (
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/traces/maybe"
	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

const gib = 1 << 30

func known(n int64) maybe.Int { return maybe.Known(n) }

// busy is a machine with two GPUs and three processes, one of them another user's.
func busy() Look {
	history := make([]maybe.Int, 200)
	for i := range history {
		history[i] = known(int64(20+i/4) * gib)
	}
	return Look{
		Version: 1, Host: "node7", Driver: "580.65",
		Devices: []Device{
			{Index: 0, Name: "NVIDIA H100 80GB HBM3", Used: known(71 * gib), Total: known(80 * gib),
				Reserved: known(gib / 2), Busy: known(98), Celsius: known(62), Watts: known(512),
				Limit:    known(700),
				Received: known(1 << 30), Sent: known(300 << 20), Clock: known(1980),
				MemoryClock:  known(2619),
				LinkReceived: known(40 * gib), LinkSent: known(41 * gib), ECC: known(1), Corrected: known(3),
				Slowed: "power limit", History: history, Every: time.Second},
			{Index: 1, Name: "NVIDIA H100 80GB HBM3", Used: known(79 * gib), Total: known(80 * gib),
				Reserved: known(0), Alarm: "2 uncorrected memory errors", History: history[:50],
				Every: time.Second},
		},
		Processes: []Process{
			{PID: 4242, User: "ada", Command: "python train.py --epochs 3", Devices: []int{0},
				Bytes: known(61 * gib), Host: known(9 * gib), Busy: known(97), Age: 3 * time.Hour,
				Torch:   true,
				History: history, Every: time.Second},
			{PID: 4300, User: "bob", Command: "python serve.py", Devices: []int{0, 1},
				Bytes: known(88 * gib), Host: known(30 * gib), Age: 50 * time.Hour, Torch: true,
				History: append(make([]maybe.Int, 20), history[:100]...), Every: time.Second,
				No: "it belongs to bob: run gmemtop as bob, or with sudo"},
			{PID: 99, User: "root", Command: "/usr/bin/Xorg :0", Devices: []int{0}, Bytes: known(gib / 8),
				Host: known(gib / 4), Busy: known(0), Age: 500 * time.Hour, No: "it is not Python"},
		},
	}
}

func open(t *testing.T, l Look) (*viewtest.Screen, *View) {
	v := New()
	v.Take(l)
	return viewtest.Open(t, v), v
}

func TestScreens(t *testing.T) {
	for name, l := range map[string]Look{
		"busy":  busy(),
		"empty": {Version: 1, NoDevices: "libnvidia-ml.so.1 is not installed"},
		"divided": {Version: 1, Devices: []Device{{Name: "NVIDIA A100-SXM4-40GB", Used: known(12 * gib),
			Total: known(40 * gib), Celsius: known(40), Watts: known(90), Limit: known(400),
			Clock:       known(210),
			MemoryClock: known(1215), ECC: known(0), Corrected: known(0), MIG: true,
			Instances: []Instance{{"MIG 1g.5gb", known(2 * gib), known(5 * gib)},
				{"MIG 3g.20gb", known(10 * gib), known(20 * gib)}}}}},
		"cpu": {Version: 1, NoDevices: "libnvidia-ml.so.1 is not installed", Processes: []Process{
			{PID: 4242, User: "ada", Command: "python train.py", Host: known(2 * gib), Age: time.Minute,
				Torch:   true,
				History: []maybe.Int{known(gib / 2), known(gib), known(gib), known(2 * gib)},
				Every:   time.Second}}},
	} {
		t.Run(name, func(t *testing.T) {
			sc, _ := open(t, l)
			sc.Golden(name)
		})
	}
}

func TestEnterWatchesOnlyWhatCanBeWatched(t *testing.T) {
	sc, v := open(t, busy())
	sc.Text(120, 36)
	sc.Press("enter") // bob's holds most
	if m, ok := sc.Sent[len(sc.Sent)-1].(leaf.ToastMsg); !ok || !strings.Contains(m.Text, "belongs to bob") {
		t.Errorf("sent %+v", sc.Sent)
	}
	sc.Press("down")
	if m, ok := v.Update(sc.State, viewtest.Key("enter"))().(AttachMsg); !ok || m.Process.PID != 4242 {
		t.Errorf("enter on ada's process does not watch it")
	}
}

func TestAProcessWithoutTorchIsNotAttachedToUnasked(t *testing.T) {
	l := busy()
	l.Processes[1].No, l.Processes[1].Torch = "", false
	sc, v := open(t, l)
	sc.Text(120, 36)
	ask, ok := v.Update(sc.State, viewtest.Key("enter"))().(leaf.PickMsg)
	if !ok || len(ask.Choices) != 2 || ask.Choices[0].Msg != nil {
		t.Fatalf("enter asks %+v, and the first choice attaches", ask)
	}
	if m, ok := ask.Choices[1].Msg.(AttachMsg); !ok || m.Process.PID != 4300 {
		t.Errorf("the second choice is %+v", ask.Choices[1])
	}
}

func TestTheSelectedProcessStaysSelectedAsTheListChanges(t *testing.T) {
	sc, v := open(t, busy())
	sc.Text(120, 36)
	sc.Press("down")
	l := busy()
	l.Processes = append(l.Processes, Process{PID: 7, Bytes: known(90 * gib), Command: "new"})
	v.Take(l)
	if p, _ := v.selected(); p.PID != 4242 {
		t.Errorf("the selected one is %d", p.PID)
	}
	for range 3 {
		sc.Press("s")
		sc.Text(120, 36)
		sc.Press("S")
		if p, _ := v.selected(); p.PID != 4242 {
			t.Errorf("the selected one is %d", p.PID)
		}
	}
}

func TestUnknownFiguresAreNotDrawnAsZero(t *testing.T) {
	sc, _ := open(t, Look{Version: 1, Devices: []Device{{Name: "H100", Total: known(80 * gib),
		MIG: true, Instances: []Instance{{Name: "MIG 1g"}}, History: make([]maybe.Int, 2)},
		{Index: 1, Name: "H100"}},
		Processes: []Process{{PID: 7, Command: "x", History: make([]maybe.Int, 2)}}})
	got := sc.Text(120, 36)
	for _, want := range []string{"The driver does not say how much", "unknown of 80.0 GiB", "MIG 1g"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, " 0 B") || strings.Contains(got, " 0 s") || strings.Contains(got, "-1") {
		t.Errorf("an unknown figure is drawn:\n%s", got)
	}
}

func TestShortCommandDropsFolders(t *testing.T) {
	for command, want := range map[string]string{
		"/opt/conda/envs/llm/bin/python /home/ada/runs/train.py --epochs 3": "python train.py --epochs 3",
		"/usr/bin/python3 -u train.py":                                      "python3 -u train.py",
		"python -m torch.distributed.run /home/ada/train.py":                "python -m torch.distributed.run /home/ada/train.py",
		"/usr/bin/Xorg :0": "Xorg :0",
		"":                 "",
	} {
		if got := shortCommand(command); got != want {
			t.Errorf("%q becomes %q, want %q", command, got, want)
		}
	}
}
