"""Run TRL's own script for supervised fine-tuning: sft.py SCRIPT [ARGUMENT ...]

The script is unchanged. It finds a small LLaMA of random weights, a tokenizer of made-up words, and lines of
such words of many lengths.
"""

import json
import os
import random
import runpy
import sys
import tempfile

import tokenizers
import torch
import transformers as t

WORDS = 1500


def lay_out():
    r = random.Random(0)
    os.makedirs("data")
    with open("data/train.jsonl", "w") as f:
        for _ in range(20000):
            line = " ".join(f"w{r.randrange(WORDS)}" for _ in range(r.randrange(60, 200)))
            f.write(json.dumps({"text": line}) + "\n")
    words = {"<pad>": 0, "<eos>": 1, "<unk>": 2, **{f"w{i}": i + 3 for i in range(WORDS)}}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    t.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    ).save_pretrained("model")
    torch.manual_seed(0)
    t.LlamaForCausalLM(
        t.LlamaConfig(
            vocab_size=len(words),
            hidden_size=96,
            intermediate_size=256,
            num_hidden_layers=12,
            num_attention_heads=6,
            num_key_value_heads=2,
            bos_token_id=1,
            eos_token_id=1,
            pad_token_id=0,
        )
    ).save_pretrained("model")


sys.argv = sys.argv[1:]
with tempfile.TemporaryDirectory() as folder:
    os.chdir(folder)
    os.environ["HF_HOME"] = folder  # where the data set is kept
    lay_out()
    runpy.run_path(sys.argv[0], run_name="__main__")
