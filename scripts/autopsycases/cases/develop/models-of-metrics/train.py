"""Scores generated speech with several metrics, each of which has a model."""

import gc
import sys

import torch
import torch.nn.functional as F
from nets import Block
from torch import nn

FIXED = "--fixed" in sys.argv


class FeatureEncoder(nn.Module):
    """The convolutions of wav2vec 2.0: 20 ms of sound become a vector."""

    def __init__(self, width=512):
        super().__init__()
        sizes = ((10, 5), (3, 2), (3, 2), (3, 2), (3, 2), (2, 2), (2, 2))
        channels = [1] + [width] * len(sizes)
        self.convs = nn.ModuleList(
            nn.Conv1d(a, b, kernel, stride) for a, b, (kernel, stride) in zip(channels, channels[1:], sizes)
        )

    def forward(self, wav):
        x = wav.unsqueeze(1)
        for conv in self.convs:
            x = F.gelu(conv(x))
        return x.transpose(1, 2)


class SpeechModel(nn.Module):
    def __init__(self, width, layers, heads, outputs):
        super().__init__()
        self.features, self.project = FeatureEncoder(), nn.Linear(512, width)
        self.layers = nn.ModuleList(Block(width, heads, causal=False) for _ in range(layers))
        self.head = nn.Linear(width, outputs)

    def forward(self, wav):
        x = self.project(self.features(wav))
        for layer in self.layers:
            x = layer(x)
        return self.head(x)


def utmos_setup():
    return {"model": SpeechModel(768, 12, 12, 1).cuda().eval()}


def utmos_metric(model, pred, gt):
    return {"utmos": model(pred).mean().item()}


def speaker_setup():
    return {"model": SpeechModel(1024, 24, 16, 256).cuda().eval()}


def speaker_metric(model, pred, gt):
    return {"spk_similarity": F.cosine_similarity(model(pred).mean(1), model(gt).mean(1)).item()}


def speech_bert_setup():
    return {"model": SpeechModel(1024, 24, 16, 1024).cuda().eval()}


def speech_bert_metric(model, pred, gt):
    similarity = F.normalize(model(pred), dim=-1)[0] @ F.normalize(model(gt), dim=-1)[0].T
    return {"speech_bert": similarity.max(dim=0).values.mean().item()}


def wer_setup():
    return {"model": SpeechModel(1280, 32, 20, 51_865).cuda().eval()}


def wer_metric(model, pred, gt):
    return {"wer": (model(pred).argmax(-1) != model(gt).argmax(-1)).float().mean().item()}


def emotion_setup():
    return {"model": SpeechModel(1024, 24, 16, 768).cuda().eval()}


def emotion_metric(model, pred, gt):
    return {"emotion_similarity": F.cosine_similarity(model(pred).mean(1), model(gt).mean(1)).item()}


METRICS = {
    "utmos": (utmos_setup, utmos_metric), "speaker": (speaker_setup, speaker_metric),
    "wer": (wer_setup, wer_metric), "speech_bert": (speech_bert_setup, speech_bert_metric),
    "emotion": (emotion_setup, emotion_metric),
}


class VersaScorer:
    def load_metrics(self, config):
        return {name: METRICS[name][0]() for name in config}

    def score_utterance(self, utterance, suite):
        scores = {}
        for name, modules in suite.items():
            scores.update(METRICS[name][1](pred=utterance[0].cuda(), gt=utterance[1].cuda(), **modules))
        return scores

    def score_utterances(self, utterances, config):
        suite = self.load_metrics(config)
        return [self.score_utterance(u, suite) for u in utterances]

    def score_utterances_by_metric(self, utterances, config):
        results = [{} for _ in utterances]
        for name in config:
            suite = self.load_metrics([name])
            for result, utterance in zip(results, utterances):
                result.update(self.score_utterance(utterance, suite))
            del suite
            gc.collect()
            torch.cuda.empty_cache()
        return results


utterances = [(torch.rand(1, 16_000 * s), torch.rand(1, 16_000 * s)) for s in (4, 7, 3, 9)]
scorer = VersaScorer()
with torch.no_grad():
    score = scorer.score_utterances_by_metric if FIXED else scorer.score_utterances
    print(score(utterances, ["utmos", "speaker", "wer", "speech_bert", "emotion"]))
