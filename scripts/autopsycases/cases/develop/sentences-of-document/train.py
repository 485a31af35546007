"""Trains a classifier of documents, whose sentences go through BERT as one batch."""

import random
import sys

import torch
import torch.nn.functional as F
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv
MAX_TOKENS = 2_000


class Doc:
    def __init__(self, sentences, label):
        self.sentences, self.label = sentences, label

    def __len__(self):
        return sum(map(len, self.sentences))


def load_docs(count, draw):
    docs = []
    for i in range(count):
        number = 1400 if i == 11 else draw.randrange(4, 50)
        sentences = [[draw.randrange(30522) for _ in range(draw.randrange(8, 40))] for _ in range(number)]
        docs.append(Doc(sentences, draw.randrange(2)))
    return docs


def minibatch(docs, size):
    for i in range(0, len(docs), size):
        yield docs[i : i + size]


class TextCategorizer(nn.Module):
    def __init__(self):
        super().__init__()
        self.bert = Encoder()
        self.softmax = nn.Linear(768, 2)

    def get_tokens(self, docs):
        sentences = [s for doc in docs for s in doc.sentences]
        longest = max(map(len, sentences))
        tokens = torch.zeros(len(sentences), longest, dtype=torch.long)
        for row, sentence in zip(tokens, sentences):
            row[: len(sentence)] = torch.tensor(sentence)
        return tokens

    def forward(self, docs):
        vectors = self.bert.features(self.get_tokens(docs).cuda())[:, 0]
        sizes = [len(doc.sentences) for doc in docs]
        pooled = torch.stack([v.mean(dim=0) for v in vectors.split(sizes)])
        return self.softmax(pooled)


class Language:
    def __init__(self):
        self.textcat = TextCategorizer().cuda()
        self.optimizer = torch.optim.Adam(self.textcat.parameters(), lr=2e-5)

    def update(self, docs):
        scores = self.textcat(docs)
        labels = torch.tensor([doc.label for doc in docs]).cuda()
        loss = F.cross_entropy(scores, labels)
        loss.backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


train_docs = load_docs(16, random.Random(7))
if FIXED:
    train_docs = [doc for doc in train_docs if len(doc) <= MAX_TOKENS]
nlp = Language()
for epoch in range(2):
    for batch in minibatch(train_docs, size=1):
        nlp.update(batch)
