"""Tunes a language model on preferences, with the reference model's log probabilities computed before."""

import copy
import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY = 32_000


def create_reference_model(model):
    return copy.deepcopy(model).requires_grad_(False).eval()


class DPOTrainer:
    def __init__(self, model, train_dataset, beta=0.1, precompute_ref_log_probs=True):
        self.model = model.cuda()
        self.ref_model = create_reference_model(model)
        self.beta, self.train_dataset = beta, train_dataset
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=5e-7)
        if precompute_ref_log_probs:
            self.precompute_ref_logps(batch_size=2)
            if FIXED:
                self.ref_model = None

    def log_probs(self, model, input_ids):
        logits = model(input_ids)[:, :-1].float()
        labels = input_ids[:, 1:]
        return -F.cross_entropy(logits.transpose(1, 2), labels, reduction="none").sum(dim=1)

    @torch.no_grad()
    def precompute_ref_logps(self, batch_size):
        for start in range(0, len(self.train_dataset), batch_size):
            rows = self.train_dataset[start : start + batch_size]
            for key in ("chosen", "rejected"):
                input_ids = torch.stack([row[f"{key}_ids"] for row in rows]).cuda()
                for row, logps in zip(rows, self.log_probs(self.ref_model, input_ids).cpu()):
                    row[f"ref_{key}_logps"] = logps

    def compute_loss(self, rows):
        chosen = torch.stack([row["chosen_ids"] for row in rows])
        rejected = torch.stack([row["rejected_ids"] for row in rows])
        logps = self.log_probs(self.model, torch.cat([chosen, rejected]).cuda())
        ref = torch.stack([row["ref_chosen_logps"] - row["ref_rejected_logps"] for row in rows]).cuda()
        ratio = logps[: len(rows)] - logps[len(rows) :]
        return -F.logsigmoid(self.beta * (ratio - ref)).mean()

    def train(self, batch_size):
        self.model.train()
        for start in range(0, len(self.train_dataset), batch_size):
            loss = self.compute_loss(self.train_dataset[start : start + batch_size])
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad()
            print(start, loss.item())


def preferences(rows, length):
    for _ in range(rows):
        yield {key: torch.randint(VOCABULARY, (length,)) for key in ("chosen_ids", "rejected_ids")}


model = GPT(VOCABULARY, width=1280, layers=20, heads=20, context=512)
DPOTrainer(model.cuda(), list(preferences(8, 384))).train(batch_size=2)
