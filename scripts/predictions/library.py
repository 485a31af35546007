"""Train a network from a library on random data: library.py NAME. It needs the library in the network's
comment."""

import sys

import torch


def gpt2():  # transformers
    from transformers import GPT2Config, GPT2LMHeadModel

    model = GPT2LMHeadModel(GPT2Config(n_layer=6, attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0))
    tokens = torch.randint(50257, (4, 512))
    return model, lambda m: m(tokens.cuda(), labels=tokens.cuda()).loss


def bert():  # transformers
    from transformers import BertConfig, BertForMaskedLM

    zero = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = BertForMaskedLM(BertConfig(num_hidden_layers=6, **zero))
    tokens = torch.randint(30000, (8, 256))
    return model, lambda m: m(tokens.cuda(), labels=tokens.cuda()).loss


def resnet18():  # torchvision
    import torchvision

    images, labels = torch.randn(32, 3, 224, 224), torch.randint(1000, (32,))
    loss = torch.nn.functional.cross_entropy
    return torchvision.models.resnet18(), lambda m: loss(m(images.cuda()), labels.cuda())


def convnext():  # timm
    import timm

    images, labels = torch.randn(32, 3, 224, 224), torch.randint(1000, (32,))
    loss = torch.nn.functional.cross_entropy
    return timm.create_model("convnext_tiny"), lambda m: loss(m(images.cuda()), labels.cuda())


def mixer():  # timm
    import timm

    images, labels = torch.randn(32, 3, 224, 224), torch.randint(1000, (32,))
    loss = torch.nn.functional.cross_entropy
    return timm.create_model("mixer_b16_224"), lambda m: loss(m(images.cuda()), labels.cuda())


PROGRAMS = {"gpt2": gpt2, "bert": bert, "resnet18": resnet18, "convnext": convnext, "mixer": mixer}

if __name__ == "__main__":
    model, loss = PROGRAMS[sys.argv[1]]()
    model = model.cuda().train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    step = 0
    while True:
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        value.item()  # waits for the device
        step += 1
        print("step", step, flush=True)
