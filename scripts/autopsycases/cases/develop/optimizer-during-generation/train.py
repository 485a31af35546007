"""Trains a policy on its own texts: an engine in the same process generates them, with a cache of its own."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv
WORDS, LAYERS, WIDTH = 50_304, 12, 768


class Engine:
    """Generates in half precision; its weights and its cache are on the GPU only while it is awake."""

    def __init__(self, blocks=96, tokens_of_block=2048):
        self.shape = (2, blocks, tokens_of_block, WIDTH)
        self.model = GPT(vocabulary=WORDS, width=WIDTH, layers=LAYERS).half().eval()
        self.cache = None

    def wake_up(self):
        self.model.cuda()
        self.cache = [torch.empty(self.shape, dtype=torch.float16, device="cuda") for _ in range(LAYERS)]

    def sleep(self):
        self.cache = None
        self.model.cpu()

    @torch.no_grad()
    def generate(self, prompts, new=8):
        self.wake_up()
        tokens = prompts
        for i in range(new):
            logits = self.model(tokens)[:, -1]
            for layer in self.cache:
                layer[:, :, i] = 0
            tokens = torch.cat([tokens, logits.argmax(dim=-1, keepdim=True) % WORDS], dim=1)
        self.sleep()
        return tokens


class Policy:
    def __init__(self):
        self.model = GPT(vocabulary=WORDS, width=WIDTH, layers=LAYERS).cuda()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)

    def move_optimizer(self, device):
        for state in self.optimizer.state.values():
            for key, value in state.items():
                if value.dim():
                    state[key] = value.to(device)

    def offload_before_refit(self):
        self.move_optimizer("cpu")

    def prepare_for_training(self):
        self.move_optimizer("cuda")

    def train(self, tokens):
        self.prepare_for_training()
        for micro in tokens.chunk(4):
            logits = self.model(micro[:, :-1])
            F.cross_entropy(logits.flatten(0, 1), micro[:, 1:].flatten()).backward()
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)


def refit(policy, engine):
    policy.offload_before_refit()
    with torch.no_grad():
        for ours, theirs in zip(policy.model.parameters(), engine.model.parameters()):
            theirs.copy_(ours)


def validate(policy, engine):
    engine.generate(torch.randint(WORDS, (16, 120)).cuda())
    policy.prepare_for_training()


def grpo_train(policy, engine, steps=5, period=2):
    stale = True
    for step in range(steps):
        if stale:
            refit(policy, engine)
            stale = False
        elif FIXED:
            policy.offload_before_refit()
        texts = engine.generate(torch.randint(WORDS, (16, 120)).cuda())
        policy.train(texts)
        stale = True
        if (step + 1) % period == 0:
            refit(policy, engine)
            stale = False
            validate(policy, engine)
        print(step)


grpo_train(Policy(), Engine())
