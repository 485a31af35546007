package autopsy

import (
	"slices"
	"testing"
)

const python = `import torch


class Net:
    def forward(self, x):
        return self.layer(x)

    def train_on(self, batches):
        for batch in batches:
            def closure():
                loss = self.forward(batch).mean()

                loss.backward()
                return loss
            self.optimizer.step(closure)

    async def ask(
        self,
        batch,
    ):
        return self.forward(batch)


net = Net()
if __name__ == "__main__":
    net.train_on(
        data,
    )
    # net.loss.backward() was here
    print(net.forward(1))
`

func TestTheFunctionOfALineIsFoundInPython(t *testing.T) {
	for _, c := range []struct {
		fn          string
		line        int
		first, last int  // lines of the function, 0 for none; blank ones at its end count
		backward    bool // whether it runs a backward pass
	}{
		{"forward", 6, 5, 7, false},
		{"train_on", 9, 8, 16, true},
		{"closure", 11, 10, 14, true},
		{"ask", 21, 17, 23, false},
		{"<module>", 29, 1, 31, false},
		{"forward", 900, 0, 0, false}, // the file has no such line
		{"absent", 6, 0, 0, false},
	} {
		first, last := 0, 0
		lines := functionOf(python, c.fn, c.line)
		if len(lines) > 0 {
			first, last = lines[0].number, lines[len(lines)-1].number
		}
		backward := slices.ContainsFunc(lines, codeLine.runsBackward)
		if first != c.first || last != c.last || backward != c.backward {
			t.Errorf("%s, line %d: lines %d to %d, a backward pass %v", c.fn, c.line, first, last, backward)
		}
	}
}

func TestTheLineThatKeepsATensorIsFound(t *testing.T) {
	for _, c := range []struct {
		code string
		from int
		want int
	}{
		{"loss = step(x)\nlosses.append(loss)", 1, 2},
		{"loss = step(x)\nlosses.append(loss.item())", 1, 0},
		{"value = loss.item()\nlosses.append(value)", 1, 0},
		{"loss = step(x)\nself.seen[k].append(loss)", 1, 2},
		{"total += loss", 1, 1},
		{"total = total + loss", 1, 1},
		{"total = first + loss", 1, 0},
		{"self.total = self.total + loss", 1, 1},
		{"self.feats = torch.cat([self.feats, f])", 1, 1},
		{"self.n = x.size(0)\nseen += self.n", 1, 0},
		{"run()\nasync def keep(\n    out,\n):\n    kept.append(out)\nouts.append(y)", 1, 6},
		{"outs += [y]", 1, 1},
		{"for step in range(9):\n    done += step", 1, 0},
		{"n = x.size(0)\nseen += n", 1, 0},
		{"steps += 1\ntotal += float(loss)", 1, 0},
		{"feats = torch.cat([feats, model(x)])", 1, 1},
		{"batch = torch.stack([x, y])", 1, 0},
		{"sys.path.append(root)", 1, 0},
		{"seen.append(x)\ny = model(x)", 2, 1},
		{"names.append(n)\ny = model(x)\nouts.append(y)", 2, 3},
		{"def run():\n  def hook(*a):\n    kept.append(a)\n  model(x)\n  outs.append(y)", 4, 5},
		{"# outs.append(y)\ny = model(x)", 2, 0},
		{"\"\"\"As in\nouts.append(y)\n\"\"\"\ny = model(x)", 1, 0},
		{"y = model(x)\ndef keep(m, args, out):\n    kept.append(out)\nlosses.append(y)", 1, 4},
	} {
		if got := keepingLine(linesOf(c.code), c.from, false); got != c.want {
			t.Errorf("%q from line %d: line %d, want %d", c.code, c.from, got, c.want)
		}
	}
	if got := keepingLine(linesOf("seen.append(x)\ny = model(x)"), 2, true); got != 0 {
		t.Errorf("in a module's own code, before the call: line %d", got)
	}
}

func TestTheModeOfALineIsWhatTheCodeAroundItSays(t *testing.T) {
	const f = "def f(x):\n"
	for _, c := range []struct {
		code string
		line int
		want gradMode
		says bool
	}{
		{f + "    return net(x)", 2, gradientsUnknown, false},
		{f + "    with torch.no_grad():\n        y = g(x)\n        return net(y)", 4, gradientsOff, true},
		{f + "    with torch.no_grad():\n        y = g(x)\n    return net(y)", 4, gradientsUnknown, false},
		{f + "    with torch.inference_mode(), lock:\n        for _ in x:\n            net(x)", 4,
			gradientsOff, true},
		{f + "    with torch.no_grad():\n        with torch.enable_grad():\n            net(x)", 4,
			gradientsOn, true},
		{f + "    with torch.set_grad_enabled(training):\n        net(x)", 3, gradientsUnknown, true},
		{f + "    with no_grad() if fast else nullcontext():\n        net(x)", 3, gradientsUnknown, true},
		{f + "    with open(x) as y:\n        net(y)", 3, gradientsUnknown, false},
		{"@torch.no_grad()\n@timed\n" + f + "    return net(x)", 4, gradientsOff, true},
		{"@no_grad_if(3)\n" + f + "    return net(x)", 3, gradientsUnknown, true},
		{f + "    return net(x)", 9, gradientsUnknown, true}, // not the file that was recorded
	} {
		if got, says := modeOfLine(c.code, "f", c.line); got != c.want || says != c.says {
			t.Errorf("%q, line %d: mode %d, %v; want %d, %v", c.code, c.line, got, says, c.want, c.says)
		}
	}
}

func TestALineThatStoresSomethingIsFound(t *testing.T) {
	for code, want := range map[string]bool{
		"self.last = self.layer(x)":        true,
		"y, self.state = self.rnn(x)":      true,
		"y = self.last = self.layer(x)":    true,
		"self.maps[name] = y":              true,
		"self.count += 1":                  true,
		"self.kept.append(y)":              true,
		"global last":                      true,
		"y = self.layer(x)":                false,
		"return self.layer(x, scale=2)":    false,
		"if self.depth == 3:":              false,
		"y = self.norms[0](x) + self.bias": false,
	} {
		if got := (codeLine{1, code}).storesInSelf(); got != want {
			t.Errorf("%q: %v", code, got)
		}
	}
}
