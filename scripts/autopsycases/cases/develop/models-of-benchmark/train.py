"""Asks several language models the same questions, one after the other."""

import sys

import torch
from nets import GPT

FIXED = "--fixed" in sys.argv
SIZES = {"gsm8k-lora-merged": (2048, 24), "llama-2": (2048, 24), "biomed": (1536, 24)}


class Client:
    """Answers requests with the model that each names."""

    def __init__(self):
        self.servers = {}

    def server(self, name):
        if name not in self.servers:
            if FIXED:
                self.servers.clear()
            width, layers = SIZES[name]
            model = GPT(32000, width=width, layers=layers, heads=16, context=2048).half().cuda()
            self.servers[name] = model.eval()
        return self.servers[name]

    @torch.no_grad()
    def ask(self, name, prompt):
        tokens = prompt.cuda()
        for _ in range(8):
            logits = self.server(name)(tokens)
            tokens = torch.cat([tokens, logits[:, -1:].argmax(-1)], dim=1)
        return tokens.cpu()


client = Client()
for name in SIZES:
    for _ in range(10):
        answer = client.ask(name, torch.randint(32000, (1, 700)))
    print(name, answer.shape)
