"""Train a network from a library or a public repository on random data: library.py NAME. It needs what the
network's comment names. The last two train as their repositories' scripts do."""

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


def unet():  # a checkout of milesial/Pytorch-UNet
    from unet import UNet
    from utils.dice_score import dice_loss

    images, masks = torch.rand(1, 3, 640, 959), torch.randint(2, (1, 640, 959))
    functional = torch.nn.functional

    def loss(model):
        out = model(images.to("cuda", memory_format=torch.channels_last))
        there = masks.cuda()
        shares = functional.one_hot(there, 2).permute(0, 3, 1, 2).float()
        dice = dice_loss(functional.softmax(out, dim=1).float(), shares, multiclass=True)
        return functional.cross_entropy(out, there) + dice

    return UNet(3, 2).to(memory_format=torch.channels_last), loss


def cifar():  # a checkout of kuangliu/pytorch-cifar
    from models import SimpleDLA

    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    loss = torch.nn.functional.cross_entropy
    return SimpleDLA(), lambda m: loss(m(images.cuda()), labels.cuda())


def clipped(parameters):
    """RMSprop that clips the gradients first."""
    optimizer = torch.optim.RMSprop(parameters, lr=1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)
    optimizer.register_step_pre_hook(lambda *_: torch.nn.utils.clip_grad_norm_(parameters, 1.0) and None)
    return optimizer


def plain(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


PROGRAMS = {
    "gpt2": gpt2,
    "bert": bert,
    "resnet18": resnet18,
    "convnext": convnext,
    "mixer": mixer,
    "unet": unet,
    "cifar": cifar,
}

if __name__ == "__main__":
    model, loss = PROGRAMS[sys.argv[1]]()
    model = model.cuda().train()
    optimizer = (clipped if sys.argv[1] == "unet" else plain)(list(model.parameters()))
    step = 0
    while True:
        optimizer.zero_grad()
        value = loss(model)
        value.backward()
        optimizer.step()
        value.item()  # waits for the device
        step += 1
        print("step", step, flush=True)
