"""Train a model of Hugging Face's transformers with its Trainer on random data: hf.py NAME [OPTION ...]"""

import argparse
import tempfile

import torch
import transformers as t


class Data(torch.utils.data.Dataset):
    """Examples made from their number."""

    def __init__(self, make, length=100_000):
        self.make, self.length = make, length

    def __len__(self):
        return self.length

    def __getitem__(self, i):
        return self.make(torch.Generator().manual_seed(i))


def tokens(g, length, vocabulary=2000):
    return torch.randint(5, vocabulary, (length,), generator=g)


def text(g, length=256):
    ids = tokens(g, length)
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}


def gpt2():
    return t.GPT2LMHeadModel(
        t.GPT2Config(vocab_size=2000, n_positions=256, n_embd=96, n_layer=12, n_head=6)
    ), text


def llama():
    return t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=2000,
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=16,
            num_attention_heads=6,
            num_key_value_heads=2,
        )
    ), text


def bert():
    return t.BertForMaskedLM(
        t.BertConfig(
            vocab_size=2000,
            hidden_size=96,
            num_hidden_layers=12,
            num_attention_heads=6,
            intermediate_size=384,
        )
    ), text


def t5():
    model = t.T5ForConditionalGeneration(
        t.T5Config(
            vocab_size=2000,
            d_model=96,
            d_kv=16,
            d_ff=256,
            num_layers=8,
            num_heads=6,
            decoder_start_token_id=0,
        )
    )
    return model, lambda g: {"input_ids": tokens(g, 128), "labels": tokens(g, 96)}


def vit():
    model = t.ViTForImageClassification(
        t.ViTConfig(
            hidden_size=96,
            num_hidden_layers=12,
            num_attention_heads=6,
            intermediate_size=384,
            num_labels=10,
        )
    )
    return model, lambda g: {
        "pixel_values": torch.randn(3, 224, 224, generator=g),
        "labels": torch.randint(10, (), generator=g),
    }


def whisper():
    model = t.WhisperForConditionalGeneration(
        t.WhisperConfig(
            vocab_size=2000,
            d_model=96,
            encoder_layers=6,
            decoder_layers=6,
            encoder_attention_heads=6,
            decoder_attention_heads=6,
            encoder_ffn_dim=384,
            decoder_ffn_dim=384,
            max_source_positions=500,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
            decoder_start_token_id=1,
            suppress_tokens=None,
            begin_suppress_tokens=None,
        )
    )
    return model, lambda g: {
        "input_features": torch.randn(80, 1000, generator=g),
        "labels": tokens(g, 64),
    }


def lora():
    import peft

    model, make = llama()
    config = peft.LoraConfig(r=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    return peft.get_peft_model(model, config), make


def mixtral():
    """A mixture of experts: which tokens an expert gets differs from step to step."""
    return t.MixtralForCausalLM(
        t.MixtralConfig(
            vocab_size=2000,
            hidden_size=96,
            intermediate_size=192,
            num_hidden_layers=8,
            num_attention_heads=6,
            num_key_value_heads=2,
            num_local_experts=4,
            num_experts_per_tok=2,
            output_router_logits=True,
        )
    ), text


def deberta():
    return t.DebertaV2ForMaskedLM(
        t.DebertaV2Config(
            vocab_size=2000,
            hidden_size=96,
            num_hidden_layers=8,
            num_attention_heads=6,
            intermediate_size=384,
            relative_attention=True,
            pos_att_type=["p2c", "c2p"],
            position_buckets=64,
            norm_rel_ebd="layer_norm",
            share_att_key=True,
        )
    ), text


def mamba():
    return t.MambaForCausalLM(
        t.MambaConfig(vocab_size=2000, hidden_size=96, state_size=16, num_hidden_layers=6)
    ), lambda g: {"input_ids": (ids := tokens(g, 96)), "labels": ids.clone()}


def wav2vec2():
    """CTC on a second of sound, with SpecAugment and layers that are dropped at random."""
    model = t.Wav2Vec2ForCTC(
        t.Wav2Vec2Config(
            vocab_size=32,
            hidden_size=96,
            num_hidden_layers=8,
            num_attention_heads=6,
            intermediate_size=384,
            conv_dim=(64,) * 7,
            num_conv_pos_embeddings=32,
            num_conv_pos_embedding_groups=4,
            ctc_zero_infinity=True,
        )
    )
    return model, lambda g: {
        "input_values": torch.randn(16000, generator=g),
        "labels": tokens(g, 12, 32),
    }


def clip():
    tower = {
        "hidden_size": 96,
        "intermediate_size": 384,
        "num_hidden_layers": 8,
        "num_attention_heads": 6,
    }
    model = t.CLIPModel(
        t.CLIPConfig(
            text_config={**tower, "vocab_size": 2000, "eos_token_id": 1999},
            vision_config={**tower, "image_size": 96, "patch_size": 8},
            projection_dim=64,
        )
    )
    return model, lambda g: {
        "input_ids": tokens(g, 64, 1999),
        "pixel_values": torch.randn(3, 96, 96, generator=g),
    }


def prefix():
    import peft

    model, make = gpt2()
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=16, prefix_projection=True)
    return peft.get_peft_model(model, config), lambda g: make(g, 192)


def padded():
    """GPT-2 with sequences of many lengths, padded to the longest of a batch by the usual collator."""
    model, _ = gpt2()

    def make(g):
        ids = tokens(g, int(torch.randint(64, 257, (), generator=g)))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": ids.clone()}

    return model, make


def summaries():
    """T5 on documents and their summaries, both of any length."""
    model, _ = t5()

    def make(g):
        ids = tokens(g, int(torch.randint(60, 200, (), generator=g)))
        labels = tokens(g, int(torch.randint(10, 60, (), generator=g)))
        return {"input_ids": ids, "attention_mask": torch.ones_like(ids), "labels": labels}

    return model, make


def pad():
    """The usual collator, with a tokenizer that only knows how to pad."""
    import tokenizers

    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"<pad>": 0}, unk_token="<pad>"))
    return t.DataCollatorForSeq2Seq(t.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="<pad>"))


def pairs():
    """As the collator of Hugging Face's example of CLIP."""
    return lambda examples: {**t.default_data_collator(examples), "return_loss": True}


# Collators of models that need one.
COLLATORS = {"padded": pad, "summaries": pad, "clip": pairs}

# What else a Trainer does.
BUSY = {
    "dataloader_num_workers": 2,
    "eval_strategy": "steps",
    "eval_steps": 10,
    "save_strategy": "steps",
    "save_steps": 25,
    "save_total_limit": 1,
}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("model")
    p.add_argument("--batch", type=int, default=1)
    p.add_argument("--accumulate", type=int, default=1)
    p.add_argument("--checkpointing", action="store_true")
    p.add_argument("--bf16", action="store_true")
    p.add_argument("--compile", action="store_true")
    p.add_argument("--busy", action="store_true", help="with workers, evaluations and checkpoints")
    a = p.parse_args()
    t.set_seed(0)
    model, make = globals()[a.model]()
    if a.model == "lora" and a.checkpointing:
        model.enable_input_require_grads()
    kind, settings = t.Trainer, t.TrainingArguments
    if a.model == "summaries":
        kind, settings = t.Seq2SeqTrainer, t.Seq2SeqTrainingArguments
    with tempfile.TemporaryDirectory() as folder:
        args = settings(
            output_dir=folder,
            max_steps=100_000,
            per_device_train_batch_size=a.batch,
            use_cpu=True,
            report_to="none",
            logging_steps=50,
            disable_tqdm=True,
            gradient_accumulation_steps=a.accumulate,
            gradient_checkpointing=a.checkpointing,
            bf16=a.bf16,
            torch_compile=a.compile,
            **(BUSY if a.busy else {"save_strategy": "no"}),
        )
        collator = COLLATORS[a.model]() if a.model in COLLATORS else None
        data = {"train_dataset": Data(make), "eval_dataset": Data(make, 4), "data_collator": collator}
        kind(model=model, args=args, **data).train()


main()
