package machine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gmemtop/gmemtop/tui/leaf"
	"github.com/gmemtop/gmemtop/tui/viewtest"
)

const gib = 1 << 30

// busy is a machine of two GPUs with three processes, one of which belongs to somebody else.
func busy() Look {
	history := make([]int64, 200)
	for i := range history {
		history[i] = int64(20+i/4) * gib
	}
	return Look{
		Version: 1, Host: "node7", Driver: "580.65",
		Devices: []Device{
			{Index: 0, Name: "NVIDIA H100 80GB HBM3", Used: 71 * gib, Total: 80 * gib, Reserved: gib / 2, Busy: 98, Celsius: 62, Watts: 512, Limit: 700,
				Received: 1 << 30, Sent: 300 << 20, Clock: 1980, MemoryClock: 2619, LinkReceived: 40 * gib, LinkSent: 41 * gib, ECC: 1, Corrected: 3, Slowed: "power limit",
				History: history, Every: time.Second},
			{Index: 1, Name: "NVIDIA H100 80GB HBM3", Used: 79 * gib, Total: 80 * gib, Busy: Unknown, Celsius: Unknown, Watts: Unknown, Limit: Unknown, Received: Unknown,
				Sent: Unknown, Clock: Unknown, MemoryClock: Unknown, LinkReceived: Unknown, LinkSent: Unknown, ECC: Unknown, Corrected: Unknown, Alarm: "2 uncorrected memory errors", History: history[:50], Every: time.Second},
		},
		Processes: []Process{
			{PID: 4242, User: "ada", Command: "python train.py --epochs 3", Devices: []int{0}, Bytes: 61 * gib, Host: 9 * gib, Busy: 97, Age: 3 * time.Hour, Torch: true,
				History: history, Every: time.Second},
			{PID: 4300, User: "bob", Command: "python serve.py", Devices: []int{0, 1}, Bytes: 88 * gib, Host: 30 * gib, Busy: Unknown, Age: 50 * time.Hour, Torch: true,
				History: append(slices.Repeat([]int64{Unknown}, 20), history[:100]...), Every: time.Second, No: "it belongs to bob: run gmemtop as bob, or with sudo"},
			{PID: 99, User: "root", Command: "/usr/bin/Xorg :0", Devices: []int{0}, Bytes: gib / 8, Host: gib / 4, Busy: 0, Age: 500 * time.Hour, No: "it is not Python"},
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
		"divided": {Version: 1, Devices: []Device{{Name: "NVIDIA A100-SXM4-40GB", Used: 12 * gib, Total: 40 * gib, Reserved: Unknown, Busy: Unknown, Celsius: 40, Watts: 90,
			Limit: 400, Received: Unknown, Sent: Unknown, Clock: 210, MemoryClock: 1215, LinkReceived: Unknown, LinkSent: Unknown, ECC: 0, Corrected: 0, MIG: true,
			Instances: []Instance{{"MIG 1g.5gb", 2 * gib, 5 * gib}, {"MIG 3g.20gb", 10 * gib, 20 * gib}}}}},
		"cpu": {Version: 1, NoDevices: "libnvidia-ml.so.1 is not installed", Processes: []Process{
			{PID: 4242, User: "ada", Command: "python train.py", Bytes: Unknown, Host: 2 * gib, Busy: Unknown, Age: time.Minute, Torch: true,
				History: []int64{gib / 2, gib, gib, 2 * gib}, Every: time.Second}}},
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
		t.Errorf("enter on ada's does not watch it")
	}
}

func TestTheSelectedProcessStaysSelectedWhenOthersComeAndWhenTheOrderChanges(t *testing.T) {
	sc, v := open(t, busy())
	sc.Text(120, 36)
	sc.Press("down")
	l := busy()
	l.Processes = append(l.Processes, Process{PID: 7, Bytes: 90 * gib, Command: "new"})
	v.Take(l)
	if p, _ := v.selected(); p.PID != 4242 {
		t.Errorf("selected is %d", p.PID)
	}
	for range 3 {
		sc.Press("s")
		sc.Text(120, 36)
		sc.Press("S")
		if p, _ := v.selected(); p.PID != 4242 {
			t.Errorf("selected is %d", p.PID)
		}
	}
}

func TestWhatTheDriverDoesNotSayIsNotDrawnAsNothing(t *testing.T) {
	sc, _ := open(t, Look{Version: 1, Devices: []Device{{Name: "H100", Used: Unknown, Total: 80 * gib, Reserved: Unknown, Busy: Unknown, Celsius: Unknown, Watts: Unknown,
		Limit: Unknown, Received: Unknown, Sent: Unknown, Clock: Unknown, MemoryClock: Unknown, LinkReceived: Unknown, LinkSent: Unknown, ECC: Unknown, Corrected: Unknown,
		MIG: true, Instances: []Instance{{"MIG 1g", Unknown, Unknown}}, History: []int64{Unknown, Unknown}}},
		Processes: []Process{{PID: 7, Command: "x", Bytes: Unknown, Host: Unknown, Busy: Unknown, History: []int64{Unknown, Unknown}}}})
	got := sc.Text(120, 36)
	for _, want := range []string{"The driver does not say how much", "unknown of 80.0 GiB", "MIG 1g"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if strings.Contains(got, " 0 B") || strings.Contains(got, " 0 ns") || strings.Contains(got, "-1") {
		t.Errorf("a figure that is not known is drawn:\n%s", got)
	}
}

func TestCommandsBeginWithWhatTellsThemApart(t *testing.T) {
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
