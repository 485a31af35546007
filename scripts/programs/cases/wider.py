"""Train a small model of a library for language, speech, series or pictures, as its documentation does:
wider.py NAME"""

import os
import random
import sys
import tempfile

import numpy as np
import torch

EPOCHS = 100_000  # the caller ends it


def reversible():
    """reformer-pytorch's language model: attention by hashing, layers whose backward pass computes their
    inputs again."""
    from reformer_pytorch import ReformerLM
    from reformer_pytorch.generative_tools import TrainingWrapper

    model = TrainingWrapper(
        ReformerLM(
            num_tokens=500,
            dim=96,
            depth=6,
            heads=4,
            max_seq_len=512,
            bucket_size=32,
            n_hashes=2,
            ff_chunks=4,
            lsh_dropout=0.1,
            causal=True,
        )
    )
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    while True:
        model(torch.randint(500, (4, 513)), return_loss=True).backward()
        optimizer.step()
        optimizer.zero_grad()


def bootstrap():
    """byol-pytorch's learner on a narrow ResNet: two views of each picture, and an average of the network."""
    from byol_pytorch import BYOL
    from torchvision import models

    resnet = models.ResNet(models.resnet.BasicBlock, [2, 2, 2, 2], width_per_group=64)
    learner = BYOL(resnet, image_size=48, hidden_layer="avgpool", projection_hidden_size=512)
    optimizer = torch.optim.Adam(learner.parameters(), lr=3e-4)
    while True:
        loss = learner(torch.randn(8, 3, 48, 48))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        learner.update_moving_average()


def series():
    """GluonTS's DeepAR on made-up series, trained by Lightning."""
    import pandas
    from gluonts.dataset.pandas import PandasDataset
    from gluonts.torch import DeepAREstimator

    days = pandas.date_range("2020-01-01", periods=400)
    r = np.random.default_rng(0)
    frames = {f"s{i}": pandas.DataFrame({"target": r.standard_normal(400).cumsum()}, days) for i in range(8)}
    os.chdir(tempfile.mkdtemp(prefix="series-"))  # it keeps checkpoints
    DeepAREstimator(
        prediction_length=24,
        freq="D",
        context_length=48,
        hidden_size=64,
        num_layers=2,
        batch_size=128,
        trainer_kwargs={
            "max_epochs": EPOCHS,
            "accelerator": "cpu",
            "enable_progress_bar": False,
            "logger": False,
        },
    ).train(PandasDataset(frames))


def words():
    """flair's trainer: a tagger of LSTM and CRF on embeddings of characters, sentences of any length."""
    import flair
    from flair.data import Corpus, Dictionary, Sentence
    from flair.embeddings import CharacterEmbeddings, OneHotEmbeddings, StackedEmbeddings
    from flair.models import SequenceTagger
    from flair.trainers import ModelTrainer

    flair.device = torch.device("cpu")
    flair.set_seed(0)
    r = np.random.default_rng(0)

    def sentence():
        s = Sentence([f"w{i}" for i in r.integers(0, 300, r.integers(8, 40))])
        for token in s:
            token.add_label("tag", "odd" if int(token.text[1:]) % 2 else "even")
        return s

    parts = [flair.datasets.FlairDatapointDataset([sentence() for _ in range(n)]) for n in (320, 16, 16)]
    corpus = Corpus(*parts)
    folder = tempfile.mkdtemp(prefix="flair-")
    characters = Dictionary()
    for c in "w0123456789":
        characters.add_item(c)
    characters.save(f"{folder}/characters")
    of_characters = CharacterEmbeddings(path_to_char_dict=f"{folder}/characters")
    tagger = SequenceTagger(
        embeddings=StackedEmbeddings([OneHotEmbeddings.from_corpus(corpus), of_characters]),
        tag_dictionary=corpus.make_label_dictionary("tag", add_unk=False),
        tag_type="tag",
        hidden_size=128,
    )
    ModelTrainer(tagger, corpus).train(
        folder, learning_rate=0.1, mini_batch_size=32, max_epochs=EPOCHS, save_final_model=False
    )


def speech():
    """SpeechBrain's Brain: features of made-up waves, its CRDNN, a CTC loss, sentences of any length."""
    import speechbrain
    from speechbrain.dataio.batch import PaddedBatch
    from speechbrain.lobes.features import Fbank
    from speechbrain.lobes.models.CRDNN import CRDNN
    from speechbrain.nnet.linear import Linear
    from speechbrain.processing.features import InputNormalization

    class Recognizer(speechbrain.Brain):
        def compute_forward(self, batch, stage):
            wavs, lengths = batch.sig
            features = self.modules.normalize(self.modules.fbank(wavs), lengths)
            return self.modules.output(self.modules.encoder(features)).log_softmax(-1), lengths

        def compute_objectives(self, predictions, batch, stage):
            tokens, many = batch.tokens
            return speechbrain.nnet.losses.ctc_loss(predictions[0], tokens, predictions[1], many, 0)

    r = torch.Generator().manual_seed(0)
    data = []
    for n in torch.randint(8000, 16000, (256,), generator=r).tolist():
        wave, tokens = torch.randn(n, generator=r), torch.randint(1, 30, (5,), generator=r)
        data.append({"sig": wave, "tokens": tokens})
    encoder = CRDNN(
        input_shape=[None, None, 40], cnn_channels=(16, 32), rnn_layers=2, rnn_neurons=64, dnn_neurons=64
    )
    brain = Recognizer(
        modules={
            "fbank": Fbank(),
            "normalize": InputNormalization(),
            "encoder": encoder,
            "output": Linear(input_size=64, n_neurons=30),
        },
        opt_class=lambda parameters: torch.optim.Adadelta(parameters, 1.0),
        run_opts={"device": "cpu", "noprogressbar": True},
    )
    brain.fit(
        range(EPOCHS),
        data,
        train_loader_kwargs={"batch_size": 4, "collate_fn": PaddedBatch, "shuffle": True},
    )


def history():
    """Darts' transformer on made-up series, trained by Lightning."""
    import pandas
    from darts import TimeSeries
    from darts.models import TransformerModel

    r = np.random.default_rng(0)
    days = pandas.date_range("2020-01-01", periods=600)
    many = [
        TimeSeries.from_times_and_values(days, r.standard_normal(600).cumsum().astype(np.float32))
        for _ in range(8)
    ]
    TransformerModel(
        input_chunk_length=96,
        output_chunk_length=24,
        d_model=64,
        nhead=4,
        num_encoder_layers=6,
        num_decoder_layers=6,
        dim_feedforward=128,
        batch_size=16,
        n_epochs=EPOCHS,
        random_state=0,
        pl_trainer_kwargs={"accelerator": "cpu", "enable_progress_bar": False, "logger": False},
    ).fit(many)


os.environ["HF_HUB_OFFLINE"] = "1"
random.seed(0)
np.random.seed(0)
torch.manual_seed(0)
globals()[sys.argv[1]]()
