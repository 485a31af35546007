"""Trains a language model with rewards; an engine on the same GPU generates the answers."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
VOCABULARY, CONTEXT, WIDTH, LAYERS, HEADS, BLOCK = 32_000, 512, 1024, 12, 16, 16
UTILIZATION = 0.3 if FIXED else 0.7
PROMPTS, ANSWERS, NEW = 2, 8, 12


class Engine:
    """Generates with a copy of the model in half precision, and reserves its cache at once."""

    def __init__(self, utilization):
        self.model = GPT(VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT).half().cuda().eval()
        free, total = torch.cuda.mem_get_info()
        per_block = 2 * BLOCK * WIDTH * 2
        blocks = int((total * utilization - (total - free)) / (per_block * LAYERS))
        self.kv_caches = [
            torch.empty(2, blocks, BLOCK, HEADS, WIDTH // HEADS, dtype=torch.half, device="cuda")
            for _ in range(LAYERS)
        ]

    def load_weights(self, policy):
        with torch.no_grad():
            for p, q in zip(self.model.parameters(), policy.parameters()):
                p.copy_(q)

    @torch.inference_mode()
    def generate(self, prompts):
        tokens = prompts
        for i in range(NEW):
            for cache in self.kv_caches:
                cache[:, : len(tokens), i % BLOCK].zero_()
            following = self.model(tokens)[:, -1].argmax(dim=-1, keepdim=True)
            tokens = torch.cat([tokens, following], dim=1)
        return tokens


def log_probs(model, tokens):
    logits = model(tokens[:, :-1])
    return -F.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none")


policy = GPT(VOCABULARY, WIDTH, LAYERS, HEADS, CONTEXT).cuda()
optimizer = torch.optim.AdamW(policy.parameters(), lr=1e-6)
engine = Engine(UTILIZATION)
for step in range(3):
    engine.load_weights(policy)
    prompts = torch.randint(VOCABULARY, (PROMPTS, 384)).cuda().repeat_interleave(ANSWERS, dim=0)
    answers = engine.generate(prompts).clone()
    advantages = torch.randn(len(answers), 1).cuda()
    loss = -(log_probs(policy, answers) * advantages).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
