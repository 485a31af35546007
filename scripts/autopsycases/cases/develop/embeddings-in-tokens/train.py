"""Tags names in many sentences; each token keeps its embedding, which the tagger reads from it."""

import sys

import torch
from nets import Encoder
from torch import nn

FIXED = "--fixed" in sys.argv


class Token:
    def __init__(self, number):
        self.number, self.embedding, self.tag = number, None, None


class Sentence:
    def __init__(self, length):
        self.tokens = [Token(int(n)) for n in torch.randint(30522, (length,))]

    def clear_embeddings(self):
        for token in self.tokens:
            token.embedding = None


class TransformerWordEmbeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Encoder()

    def embed(self, sentences):
        numbers = torch.tensor([[t.number for t in s.tokens] for s in sentences]).cuda()
        states = self.model.features(numbers)
        for sentence, state in zip(sentences, states):
            for token, vector in zip(sentence.tokens, state):
                token.embedding = vector


class SequenceTagger(nn.Module):
    def __init__(self, tags=20):
        super().__init__()
        self.embeddings, self.linear = TransformerWordEmbeddings(), nn.Linear(768, tags)

    def forward(self, sentences):
        self.embeddings.embed(sentences)
        return self.linear(torch.stack([torch.stack([t.embedding for t in s.tokens]) for s in sentences]))

    def predict(self, sentences, mini_batch_size=32, embedding_storage_mode="gpu"):
        with torch.no_grad():
            for i in range(0, len(sentences), mini_batch_size):
                batch = sentences[i : i + mini_batch_size]
                for sentence, tags in zip(batch, self.forward(batch).argmax(-1).cpu()):
                    for token, tag in zip(sentence.tokens, tags):
                        token.tag = int(tag)
                    if embedding_storage_mode == "none":
                        sentence.clear_embeddings()


tagger = SequenceTagger().cuda().eval()
sentences = [Sentence(128) for _ in range(3200)]
tagger.predict(sentences, embedding_storage_mode="none" if FIXED else "gpu")
