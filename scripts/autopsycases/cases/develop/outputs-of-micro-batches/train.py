"""Updates a policy by reinforcement learning: a mini-batch is many micro-batches, whose outputs are kept."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv


class Engine:
    def __init__(self):
        self.model = GPT(width=512, layers=8, heads=8, vocabulary=32000).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)

    def forward_step(self, batch):
        tokens = batch["tokens"].cuda()
        logits = self.model(tokens)[:, :-1]
        log_probs = logits.log_softmax(dim=-1)
        taken = log_probs.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        entropy = -(log_probs.exp() * log_probs).sum(dim=-1)
        output = {"log_probs": taken, "entropy": entropy}
        ratio = torch.exp(taken - batch["old"].cuda())
        loss = -(ratio * batch["advantages"].cuda()).mean()
        if FIXED:
            output = {name: value.detach() for name, value in output.items()}
        return loss, output

    def train_mini_batch(self, micro_batches):
        outputs = []
        for batch in micro_batches:
            loss, output = self.forward_step(batch)
            (loss / len(micro_batches)).backward()
            outputs.append({"loss": loss.detach(), "model_output": output})
        self.optimizer.step()
        self.optimizer.zero_grad()
        return {
            name: torch.cat([o["model_output"][name] for o in outputs]).mean().item()
            for name in ("log_probs", "entropy")
        }


def micro_batch(samples=4, length=512):
    return {
        "tokens": torch.randint(32000, (samples, length)),
        "old": torch.zeros(samples, length - 1),
        "advantages": torch.rand(samples, length - 1),
    }


engine = Engine()
for n in (4, 32):
    print(engine.train_mini_batch([micro_batch() for _ in range(n)]))
