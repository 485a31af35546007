"""Predicts a large set of time series with a network that also tells what it paid attention to."""

import sys

import torch
import torch.nn.functional as F
from torch import nn

FIXED = "--fixed" in sys.argv


def move_to_device(x, device):
    if isinstance(x, dict):
        return {k: move_to_device(v, device) for k, v in x.items()}
    return x.to(device)


class VariableSelection(nn.Module):
    def __init__(self, variables, width):
        super().__init__()
        self.embed = nn.Linear(variables, variables * width)
        self.weights = nn.Linear(variables, variables)
        self.variables, self.width = variables, width

    def forward(self, x):
        sparse = F.softmax(self.weights(x), dim=-1).unsqueeze(-2)
        each = self.embed(x).unflatten(-1, (self.variables, self.width))
        return (sparse @ each).squeeze(-2), sparse


class TemporalFusionTransformer(nn.Module):
    def __init__(self, variables=40, known=12, width=64, heads=4, quantiles=7):
        super().__init__()
        self.encoder_variables = VariableSelection(variables, width)
        self.decoder_variables = VariableSelection(known, width)
        self.encoder = nn.LSTM(width, width, batch_first=True)
        self.decoder = nn.LSTM(width, width, batch_first=True)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.output = nn.Linear(width, quantiles)

    def forward(self, x):
        history, encoder_weights = self.encoder_variables(x["encoder_cont"])
        future, decoder_weights = self.decoder_variables(x["decoder_cont"])
        history, state = self.encoder(history)
        future, _ = self.decoder(future, state)
        both = torch.cat([history, future], dim=1)
        attended, attention = self.attention(future, both, both, average_attn_weights=False)
        return {
            "prediction": self.output(future + attended), "attention": attention,
            "encoder_variables": encoder_weights, "decoder_variables": decoder_weights,
        }


class PredictCallback:
    def __init__(self, return_x):
        self.return_x, self.predictions, self.info = return_x, [], []

    def on_predict_batch_end(self, outputs, batch):
        x, y = batch
        processed = {k: v.detach() for k, v in outputs.items()}
        self.predictions.append(move_to_device(processed, "cpu") if FIXED else processed)
        if self.return_x:
            self.info.append(move_to_device(x, "cpu") if FIXED else x)

    def on_predict_epoch_end(self):
        return {k: torch.cat([p[k] for p in self.predictions]) for k in self.predictions[0]}


class Trainer:
    def __init__(self, callback):
        self.callback = callback

    @torch.inference_mode()
    def predict(self, model, loader):
        model.eval()
        for x, y in loader:
            batch = move_to_device(x, "cuda"), y.cuda()
            self.callback.on_predict_batch_end(model(batch[0]), batch)
        return self.callback.on_predict_epoch_end()


def windows(batches, batch_size=256, encoder_length=168, decoder_length=24):
    for _ in range(batches):
        x = {
            "encoder_cont": torch.rand(batch_size, encoder_length, 40),
            "decoder_cont": torch.rand(batch_size, decoder_length, 12),
            "encoder_lengths": torch.full((batch_size,), encoder_length),
        }
        yield x, torch.rand(batch_size, decoder_length)


model = TemporalFusionTransformer().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
for step, (x, y) in enumerate(windows(6, batch_size=64)):
    prediction = model(move_to_device(x, "cuda"))["prediction"]
    error = y.cuda().unsqueeze(-1) - prediction
    loss = torch.max(0.5 * error, -0.5 * error).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item())
del prediction, error, loss, x, y
predictions = Trainer(PredictCallback(return_x=True)).predict(model, windows(120))
print(predictions["prediction"].shape)
