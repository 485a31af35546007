"""Trains a language model on preferred and rejected answers."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY, IGNORE = 128_000, -100


def get_batch_logps(logits, labels, chunk=128):
    labels, logits = labels[:, 1:].clone(), logits[:, :-1]
    mask = labels != IGNORE
    labels[labels == IGNORE] = 0
    if FIXED:
        parts = []
        for part, target in zip(logits.split(chunk, dim=1), labels.split(chunk, dim=1)):
            chosen = part.gather(2, target[..., None]).squeeze(2)
            parts.append(chosen - part.logsumexp(dim=-1))
        logps = torch.cat(parts, dim=1)
    else:
        logps = logits.log_softmax(-1).gather(2, labels[..., None]).squeeze(2)
    return (logps * mask).sum(-1), mask.sum(-1)


class DPOTrainer:
    def __init__(self, model, ref_model, beta=0.1):
        self.model, self.ref_model, self.beta = model, ref_model, beta
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)

    def concatenated_forward(self, model, batch):
        logits = model(batch["input_ids"])
        logps, _ = get_batch_logps(logits, batch["labels"])
        return logps.chunk(2)

    def compute_loss(self, batch):
        chosen, rejected = self.concatenated_forward(self.model, batch)
        with torch.no_grad():
            ref_chosen, ref_rejected = self.concatenated_forward(self.ref_model, batch)
        return -F.logsigmoid(self.beta * (chosen - rejected - ref_chosen + ref_rejected)).mean()

    def training_step(self, batch):
        loss = self.compute_loss(batch)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def pairs(count, length):
    ids = torch.randint(VOCABULARY, (2 * count, length)).cuda()
    labels = ids.clone()
    labels[:, : length // 4] = IGNORE
    return {"input_ids": ids, "labels": labels}


model, reference = (
    GPT(VOCABULARY, width=1024, layers=12, heads=16, context=2048).cuda().bfloat16() for _ in range(2)
)
trainer = DPOTrainer(model.train(), reference.eval().requires_grad_(False))
for step, length in enumerate((700, 620, 810, 2048, 900)):
    print(step, trainer.training_step(pairs(4, length)))
