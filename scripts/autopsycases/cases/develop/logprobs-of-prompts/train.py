"""Serves a language model: memory for keys and values is reserved at start, requests come in batches."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv
VOCABULARY, WIDTH, LAYERS, HEADS, KV_HEADS, SIZE = 151_936, 1536, 28, 12, 2, 128


class KVPool:
    def __init__(self, tokens):
        self.k_buffer, self.v_buffer = (
            [torch.empty(tokens, KV_HEADS, SIZE, dtype=torch.bfloat16, device="cuda") for _ in range(LAYERS)]
            for _ in range(2)
        )
        self.used = 0

    def alloc(self, tokens):
        at = torch.arange(self.used, self.used + tokens, device="cuda")
        self.used += tokens
        return at


class DecoderLayer(nn.Module):
    def __init__(self, index):
        super().__init__()
        self.index = index
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH), nn.RMSNorm(WIDTH)
        self.qkv_proj = nn.Linear(WIDTH, (HEADS + 2 * KV_HEADS) * SIZE)
        self.o_proj = nn.Linear(HEADS * SIZE, WIDTH, bias=False)
        self.gate_up_proj = nn.Linear(WIDTH, 2 * 8960, bias=False)
        self.down_proj = nn.Linear(8960, WIDTH, bias=False)

    def forward(self, x, pool, at):
        q, k, v = self.qkv_proj(self.norm1(x)).split([HEADS * SIZE, KV_HEADS * SIZE, KV_HEADS * SIZE], dim=-1)
        pool.k_buffer[self.index][at] = k.view(-1, KV_HEADS, SIZE)
        pool.v_buffer[self.index][at] = v.view(-1, KV_HEADS, SIZE)
        heads = [t.view(-1, n, SIZE).transpose(0, 1) for t, n in ((q, HEADS), (k, KV_HEADS), (v, KV_HEADS))]
        y = F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True)
        x = x + self.o_proj(y.transpose(0, 1).reshape(-1, HEADS * SIZE))
        gate, up = self.gate_up_proj(self.norm2(x)).chunk(2, dim=-1)
        return x + self.down_proj(F.silu(gate) * up)


class LogitsProcessor(nn.Module):
    def forward(self, hidden, lm_head, last, tokens, return_logprob):
        if not return_logprob:
            return self._get_logits(hidden[last], lm_head), None
        logprobs = []
        for rows, targets in zip(*(t.split(1024 if FIXED else len(t)) for t in (hidden, tokens))):
            input_logprobs = self.compute_temp_top_p_normalized_logprobs(self._get_logits(rows, lm_head))
            logprobs.append(input_logprobs[torch.arange(len(rows), device="cuda"), targets])
        return self._get_logits(hidden[last], lm_head), torch.cat(logprobs)

    def _get_logits(self, hidden, lm_head):
        return torch.matmul(hidden, lm_head.weight.T)[:, :VOCABULARY].float()

    def compute_temp_top_p_normalized_logprobs(self, logits):
        return F.log_softmax(logits, dim=-1)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(DecoderLayer(i) for i in range(LAYERS))
        self.norm, self.logits_processor = nn.RMSNorm(WIDTH), LogitsProcessor()

    def forward(self, tokens, pool, at, last, return_logprob):
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = layer(x, pool, at)
        return self.logits_processor(self.norm(x), self.embed_tokens, last, tokens, return_logprob)


class ModelRunner:
    def __init__(self):
        with torch.device("meta"):
            model = Model().to(torch.bfloat16)
        self.model = model.to_empty(device="cuda")
        self.pool = KVPool(tokens=400_000)

    @torch.no_grad()
    def forward(self, lengths, return_logprob=False):
        tokens = torch.randint(VOCABULARY, (sum(lengths),), device="cuda")
        last = torch.tensor(lengths, device="cuda").cumsum(0) - 1
        logits, logprobs = self.model(tokens, self.pool, self.pool.alloc(len(tokens)), last, return_logprob)
        return logits.argmax(dim=-1), logprobs


runner = ModelRunner()
print(runner.forward([512, 2048, 900, 1500])[0].shape)
for _ in range(4):
    runner.forward([1, 1, 1, 1])
print(runner.forward([2048, 1024, 3072, 3072], return_logprob=True)[1].shape)
