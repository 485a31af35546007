"""Fine-tunes a language model on instructions; the loss is summed over tokens, not averaged."""

import sys

import torch
from nets import GPT
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, BATCH = 128_256, 1024, 2


def trained_on(model, loss_of, batches, optimizer):
    for step in range(batches):
        tokens = torch.randint(VOCABULARY, (BATCH, CONTEXT)).cuda()
        outputs = {"logits": model(tokens)}
        logits = outputs["logits"]
        shift_logits = logits[..., :-1, :].contiguous()
        shift_labels = tokens[..., 1:].contiguous()
        if FIXED:
            del outputs, logits
        shift_logits = shift_logits.view(-1, VOCABULARY)
        loss = loss_of(shift_logits, shift_labels.view(-1))
        if FIXED:
            del shift_logits
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        print(step, loss.item())


model = GPT(VOCABULARY, width=1024, layers=8, heads=16, context=CONTEXT).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
trained_on(model, nn.CrossEntropyLoss(reduction="sum"), 4, optimizer)
