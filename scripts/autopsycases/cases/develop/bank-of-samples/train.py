"""Distils a large face recogniser into a small one with a contrastive loss over a memory of all pictures."""

import sys

import torch
import torch.nn.functional as F
from nets import ResNet
from torch import nn

FIXED = "--fixed" in sys.argv
PICTURES, FEATURES, NEGATIVES, BATCH = 17_091_657, 128, 4096, 32
ROWS = 65_536 if FIXED else PICTURES


class ContrastMemory(nn.Module):
    """Features of teacher and student for each picture, from which negatives are drawn."""

    def __init__(self, momentum=0.5, temperature=0.07):
        super().__init__()
        self.momentum, self.temperature = momentum, temperature
        spread = (FEATURES / 3) ** -0.5
        self.register_buffer(
            "memory_v1", torch.empty(ROWS, FEATURES, device="cuda").uniform_(-spread, spread)
        )
        self.register_buffer(
            "memory_v2", torch.empty(ROWS, FEATURES, device="cuda").uniform_(-spread, spread)
        )

    def forward(self, student, teacher, rows):
        drawn = torch.randint(ROWS, (len(rows), NEGATIVES + 1), device=rows.device)
        drawn[:, 0] = rows
        of_teacher = self.memory_v1[drawn.view(-1)].view(len(rows), -1, FEATURES)
        of_student = self.memory_v2[drawn.view(-1)].view(len(rows), -1, FEATURES)
        scores_s = torch.bmm(of_teacher, student.unsqueeze(2)).squeeze(2) / self.temperature
        scores_t = torch.bmm(of_student, teacher.unsqueeze(2)).squeeze(2) / self.temperature
        with torch.no_grad():
            for memory, feature in ((self.memory_v1, teacher), (self.memory_v2, student)):
                mixed = memory[rows] * self.momentum + feature * (1 - self.momentum)
                memory[rows] = F.normalize(mixed)
        first = torch.zeros(len(rows), dtype=torch.long, device=rows.device)
        return F.cross_entropy(scores_s, first) + F.cross_entropy(scores_t, first)


teacher = ResNet((3, 4, 23, 3), classes=512).cuda().eval().requires_grad_(False)
student = ResNet(classes=512).cuda()
embed_t, embed_s = nn.Linear(512, FEATURES).cuda(), nn.Linear(512, FEATURES).cuda()
criterion = ContrastMemory()
parameters = [*student.parameters(), *embed_s.parameters(), *embed_t.parameters()]
optimizer = torch.optim.SGD(parameters, lr=0.05, momentum=0.9)
for step in range(3):
    images, rows = torch.rand(BATCH, 3, 112, 112).cuda(), torch.randint(ROWS, (BATCH,)).cuda()
    with torch.no_grad():
        known = teacher(images)
    loss = criterion(F.normalize(embed_s(student(images))), F.normalize(embed_t(known)), rows)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
