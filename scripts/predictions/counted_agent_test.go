package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/gmemtop/gmemtop/capture/torchtest"
)

// counted.py knows a plan's number from the agent's hook, wherever that keeps the agent.
func TestTheAgentIsAskedForTheNumberOfThePlan(t *testing.T) {
	out, err := exec.Command(torchtest.Python(t), "-B", "-c", `
import sys
from types import SimpleNamespace

from torch.optim import optimizer

import counted

sys.path.append("../../capture/pytorch")
from agent.agent import Agent
from agent.tally import counting

print(counted.plan())
agent = Agent("/nowhere", False)
agent.manager = SimpleNamespace(managed=7)
pre, _ = counting(agent.tally, agent.clock, agent._pre, agent._post, agent.caught)
optimizer.register_optimizer_step_pre_hook(pre)
print(counted.plan())
`).CombinedOutput()
	if got := strings.Fields(string(out)); err != nil || len(got) != 2 || got[0] != "0" || got[1] != "7" {
		t.Errorf("%v\n%s", err, out)
	}
}
