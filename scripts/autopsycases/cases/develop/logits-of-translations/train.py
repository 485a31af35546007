"""Tunes a translator with a trainer that computes metrics on all predictions of the evaluation."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY = 32_128


class EncoderDecoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = GPT(VOCABULARY, width=512, layers=6, heads=8, causal=False)
        self.decoder = GPT(VOCABULARY, width=512, layers=6, heads=8)

    def forward(self, input_ids, labels):
        memory = self.encoder.features(input_ids)
        hidden = self.decoder.features(labels) + memory.mean(dim=1, keepdim=True)
        logits = self.decoder.head(hidden)
        loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits, "encoder_last_hidden_state": memory}


def nested_concat(tensors, new_tensors):
    if isinstance(tensors, tuple):
        return type(tensors)(nested_concat(t, n) for t, n in zip(tensors, new_tensors))
    return torch.cat((tensors, new_tensors), dim=0)


def to_host(tensors):
    return tuple(to_host(t) for t in tensors) if isinstance(tensors, tuple) else tensors.cpu()


class Trainer:
    def __init__(self, model, compute_metrics, eval_accumulation_steps=None):
        self.model, self.compute_metrics = model.cuda(), compute_metrics
        self.eval_accumulation_steps = eval_accumulation_steps
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)

    def train(self, loader):
        self.model.train()
        for batch in loader:
            loss = self.model(*(x.cuda() for x in batch))["loss"]
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()

    def prediction_step(self, batch):
        with torch.no_grad():
            outputs = self.model(*(x.cuda() for x in batch))
        return outputs["loss"].detach(), (outputs["logits"], outputs["encoder_last_hidden_state"])

    def evaluate(self, loader):
        self.model.eval()
        preds_host, all_preds = None, None
        for step, batch in enumerate(loader):
            _, logits = self.prediction_step(batch)
            preds_host = logits if preds_host is None else nested_concat(preds_host, logits)
            if self.eval_accumulation_steps and (step + 1) % self.eval_accumulation_steps == 0:
                part = to_host(preds_host)
                all_preds = part if all_preds is None else nested_concat(all_preds, part)
                preds_host = None
        return self.compute_metrics(all_preds if preds_host is None else to_host(preds_host))


def batches(count, size, source=320, target=256):
    for _ in range(count):
        yield torch.randint(VOCABULARY, (size, source)), torch.randint(VOCABULARY, (size, target))


trainer = Trainer(EncoderDecoder(), lambda preds: len(preds[0]), 2 if FIXED else None)
trainer.train(batches(6, 8))
print(trainer.evaluate(batches(40, 4)))
