package autopsy

import "testing"

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
		fn   string
		line int
		want bool // whether it runs a backward pass
	}{
		{"forward", 6, false},
		{"train_on", 9, true},
		{"closure", 11, true},
		{"ask", 21, false},
		{"<module>", 29, false},
		{"forward", 900, false}, // the file has no such line
		{"absent", 6, false},
	} {
		if got := runsBackward(functionText(python, c.fn, c.line)); got != c.want {
			t.Errorf("%s, line %d: a backward pass %v, want %v:\n%s", c.fn, c.line, got, c.want,
				functionText(python, c.fn, c.line))
		}
	}
	if functionText(python, "ask", 21) == "" || functionText(python, moduleLevel, 29) == "" {
		t.Error("no text of a function, or of the module's own code")
	}
}
