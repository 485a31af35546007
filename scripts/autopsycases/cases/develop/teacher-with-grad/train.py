"""Distils a language model: the student learns the teacher's distribution over tokens."""

import sys

import torch
import torch.nn.functional as F
from nets import GPT

FIXED = "--fixed" in sys.argv

with torch.device("cuda"):
    teacher = GPT(vocabulary=32000, width=1536, layers=24, heads=16, context=1024).bfloat16()
    student = GPT(vocabulary=32000, width=768, layers=12, heads=12, context=1024).bfloat16()
teacher.eval()
optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5)
for step in range(4):
    tokens = torch.randint(32000, (14, 512)).cuda()
    with torch.set_grad_enabled(not FIXED):
        wanted = F.softmax(teacher(tokens), dim=-1)
    said = F.log_softmax(student(tokens), dim=-1)
    loss = F.kl_div(said.flatten(0, 1), wanted.flatten(0, 1), reduction="batchmean")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step)
