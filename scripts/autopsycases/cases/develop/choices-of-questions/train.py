"""Evaluates a quantized language model: perplexity first, then multiple-choice questions."""

import contextlib
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
CHOICES = [362, 425, 356, 422]


class PPL:
    @staticmethod
    @torch.no_grad()
    def evaluate(model, blocks):
        losses = []
        for tokens in blocks:
            tokens = tokens.cuda()
            logits = model(tokens[:, :-1])
            losses.append(F.cross_entropy(logits.flatten(0, 1).float(), tokens[:, 1:].flatten()).item())
        return sum(losses) / len(losses)


class GenericMMLU:
    @staticmethod
    def evaluate(model, questions):
        scores, labels = [], []
        with torch.no_grad() if FIXED else contextlib.nullcontext():
            for tokens, label in questions:
                logits = model(tokens.cuda())[:, -1]
                scores.append(logits[:, CHOICES])
                labels.append(label)
        predictions = torch.cat(scores).argmax(dim=-1).cpu()
        return (predictions == torch.cat(labels)).float().mean().item()


def blocks(count):
    for _ in range(count):
        yield torch.randint(32_000, (1, 1024))


def questions(count):
    for i in range(count):
        yield torch.randint(32_000, (1, 350 + 53 * (i * 7 % 11))), torch.randint(4, (1,))


model = GPT(vocabulary=32_000, width=1024, layers=20, heads=16, context=1024).half().cuda().eval()
print("perplexity", PPL.evaluate(model, blocks(6)))
print("MMLU", GenericMMLU.evaluate(model, questions(120)))
