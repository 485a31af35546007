package main

import "strings"

// program is a training that is estimated.
type program struct {
	name   string // of the files that hold what was found
	title  string // what the page calls it
	folder string // the folder of sources that has the script; "" for one of our examples
	commit string // which the folder has to be at
	script string // in the folder; "-m MODULE" in its place runs a module
	args   string
	flags  string // of gmemtop estimate
	// modules are folders of the sources that modules are imported from.
	modules []string
	// ranks is how many processes torchrun starts on this machine, 0 for the script alone.
	ranks int
	// cards says that the page names the smallest card that it fits on.
	cards bool
}

// command is what the page shows: the command as its user would type it.
func (p *program) command() string {
	words := "python " + p.script
	if p.ranks > 0 {
		words = "torchrun --nproc-per-node " + itoa(p.ranks) + " " + p.script
	}
	if p.args != "" {
		words += " " + p.args
	}
	if p.flags != "" {
		words = p.flags + " -- " + words
	}
	return words
}

// example is one of our examples.
func example(name string) program {
	return program{name: name, title: name, script: "examples/" + name + ".py"}
}

// checkout is a repository at a commit.
type checkout struct{ folder, repository, commit string }

func (c checkout) program(name, what, script, args string) program {
	title := c.repository + " " + c.commit
	if what != "" {
		title += ", " + what
	}
	return program{name: name, title: title, folder: c.folder, commit: c.commit, script: script, args: args}
}

// lesson is a script from a fork of stanford-cs336/assignment2-systems, which makes its data itself. Its
// author published a memory snapshot of it.
func lesson(owner, commit, modules, script, args string) program {
	c := checkout{owner, owner + "/assignment2-systems", commit}
	p := c.program("assignment2-systems-of-"+owner, "", script, args)
	if modules != "" {
		p.modules = []string{owner + "/" + modules}
	}
	return p
}

func (p program) onCards() program               { p.cards = true; return p }
func (p program) with(flags string) program      { p.flags = flags; return p }
func (p program) under(ranks int) program        { p.ranks = ranks; return p }
func (p program) from(modules ...string) program { p.modules = modules; return p }

var (
	theirs    = checkout{"examples", "pytorch/examples", "77f55b91"}
	nanoGPT   = checkout{"nanoGPT", "karpathy/nanoGPT", "3adf61e1"}
	minGPT    = checkout{"minGPT", "karpathy/minGPT", "37baab71"}
	decomfl   = checkout{"DeComFL", "ZidongLiu/DeComFL", "0c426e65"}
	timm      = checkout{"pytorch-image-models", "huggingface/pytorch-image-models", "aa4b5850"}
	diffusers = checkout{"diffusers", "huggingface/diffusers", "58eb52c0"}
	lightning = checkout{"lightning", "Lightning-AI/pytorch-lightning", "7f0c3436"}
	// a fork that holds the scripts of transformers 4.57.5 as they are
	transformers = checkout{"transformers", "PerforatedAI/PerforatedAI-Transformers", "746e0e91"}
	accelerate   = checkout{"accelerate", "huggingface/accelerate", "16cb6eb8"}
	trl          = checkout{"trl", "huggingface/trl", "f2cd5771"}
	torchtitan   = checkout{"torchtitan", "pytorch/torchtitan", "b5bcd76c"}
	peft         = checkout{"peft", "huggingface/peft", "5d602fdb"}
	torchtune    = checkout{"torchtune", "meta-pytorch/torchtune", "bd2a0fc7"}
	geometric    = checkout{"pytorch_geometric", "pyg-team/pytorch_geometric", "5c6461b2"}
	hydra        = checkout{"hydra", "ashleve/lightning-hydra-template", "bddbc24b"}
	sentences    = checkout{"sentence-transformers", "huggingface/sentence-transformers", "cad21198"}
)

const languageModeling = "examples/pytorch/language-modeling/"

// loraOnLlama are the arguments of peft's script for instructions.
const loraOnLlama = "--model_name_or_path llama --dataset_name texts --use_peft_lora True " +
	"--per_device_train_batch_size 8 --bf16 True --gradient_checkpointing True --max_length 512 " +
	"--output_dir out"

// groups are the tables of the page.
var groups = map[string][]program{
	"examples": {example("mlp"), example("vgg16"), example("resnet50"), example("vit"), example("gpt2")},

	"scripts": {
		theirs.program("mnist", "mnist", "mnist/main.py", ""),
		theirs.program("vae", "vae", "vae/main.py", "").onCards(),
		theirs.program("dcgan", "dcgan", "dcgan/main.py", "--dataset fake --accel --workers 0").
			onCards(),
		theirs.program("imagenet", "imagenet", "imagenet/main.py", "--dummy -a resnet50 -b 256 -j 0").
			onCards(),
		theirs.program("word_language_model", "word_language_model", "word_language_model/main.py",
			"--accel --epochs 6 --data words"),
		theirs.program("mnist_rnn", "mnist_rnn", "mnist_rnn/main.py", "--accel"),
		theirs.program("siamese_network", "siamese_network", "siamese_network/main.py", ""),
		theirs.program("fsdp2", "distributed/FSDP2", "distributed/FSDP2/example.py", "").under(2),
		nanoGPT.program("nanoGPT-fp32", "fp32", "train.py", "--dataset=tokens --compile=False "+
			"--dtype=float32 --eval_iters=1 --gradient_accumulation_steps=2 --batch_size=4"),
		nanoGPT.program("nanoGPT-bf16", "bf16", "train.py", "--dataset=tokens --compile=False "+
			"--dtype=bfloat16 --eval_iters=1 --gradient_accumulation_steps=2").onCards(),
		timm.program("timm-vit", "", "train.py", "--data-dir img --model vit_base_patch16_224 "+
			"--num-classes 2 -b 64 --amp --workers 1 --output out").onCards(),
		timm.program("timm-ddp", "ResNet-50", "train.py", "--data-dir img --model resnet50 --num-classes 2 "+
			"-b 64 --amp --workers 1 --output out").under(2),
		checkout{"pytorch-cifar", "kuangliu/pytorch-cifar", "49b7aa97"}.program("cifar", "", "main.py", "").
			onCards(),
		checkout{"Pytorch-UNet", "milesial/Pytorch-UNet", "21d7850f"}.program("unet", "", "train.py",
			"--amp").onCards(),
		checkout{"bolongcheng", "bolongcheng/assignment2-systems", "2baa5ff4"}.program(
			"assignment2-systems-of-bolongcheng", "", "-m scripts.benchmark_base",
			"--mode benchmark --model medium --option opt").from("bolongcheng",
			"bolongcheng/cs336-basics"),
		checkout{"x-transformers", "lucidrains/x-transformers", "9252ed78"}.program("x-transformers", "",
			"train_copy.py", ""),
		minGPT.program("chargpt", "chargpt", "projects/chargpt/chargpt.py", "").from("minGPT"),
		minGPT.program("adder", "adder", "projects/adder/adder.py", "").from("minGPT"),
		decomfl.program("decomfl", "", "zo_rge_main.py",
			"--dataset=mnist --num-pert=10 --lr=1e-5 --mu=1e-3 --momentum=0.9"),
		decomfl.program("fedavg", "FedAvg", "fo_fl_main.py", "--dataset=cifar10 --num-clients=3 "+
			"--num-sample-clients=2 --iterations=10 --train-batch-size=32 --lr=1e-3"),
		diffusers.program("diffusers", "unconditional_image_generation",
			"examples/unconditional_image_generation/train_unconditional.py", "--train_data_dir img "+
				"--resolution=64 --train_batch_size=16 --use_ema --mixed_precision=no "+
				"--output_dir out").onCards(),
		diffusers.program("train_text_to_image", "text_to_image, Stable Diffusion 1.5",
			"examples/text_to_image/train_text_to_image.py", "--pretrained_model_name_or_path diffusion "+
				"--train_data_dir captioned --resolution 512 --train_batch_size 4 "+
				"--gradient_checkpointing --mixed_precision bf16 --use_ema --output_dir out"),
		diffusers.program("text_to_image_lora", "text_to_image by LoRA, Stable Diffusion 1.5",
			"examples/text_to_image/train_text_to_image_lora.py",
			"--pretrained_model_name_or_path diffusion "+
				"--train_data_dir captioned --resolution 512 --train_batch_size 4 --mixed_precision bf16 "+
				"--output_dir out"),
		torchtune.program("torchtune-1b", "full_finetune_single_device, Llama 3.2 1B",
			"recipes/full_finetune_single_device.py", "--config configs/llama3_2/1B_full_single_device.yaml "+
				"tokenizer.path=bytes.model dataset.source=json dataset.data_files=instructions.json "+
				"checkpointer.checkpoint_dir=llama optimizer._component_=torch.optim.AdamW "+
				"optimizer_in_bwd=False output_dir=out").from("torchtune"),
		theirs.program("ddp-series", "distributed/ddp-tutorial-series",
			"distributed/ddp-tutorial-series/multigpu_torchrun.py", "5 1").under(2),
		theirs.program("fsdp-tp", "distributed/tensor_parallelism, FSDP2 of 4 by tensor parallelism of 2",
			"distributed/tensor_parallelism/fsdp_tp_example.py", "").under(8),
		checkout{"ng-video-lecture", "karpathy/ng-video-lecture", "52201428"}.program("ng-video-lecture", "",
			"gpt.py", ""),
		lesson("MAGMA27", "143265c", "cs336-basics", "cs336_systems/benchmarking_script.py", ""),
		lesson("bcrafton", "252f94f", "", "memory_profile.py", ""),
		lesson("Wedsonlin", "87b0864", "cs336-basics", "cs336_systems/benchmark.py",
			"--pattern full-training-step"),
		lesson("NiuHuangxiaozi", "9d868b9", ".", "cs336_systems/profile_memory/profile_memory.py",
			"--mode both --context_length 200"),
		lesson("notHanmin", "912c740", "", "cs336_systems/benchmarking_script.py", "").with("--eager"),
		lightning.program("lightning-transformer", "transformer", "examples/pytorch/basics/transformer.py",
			""),
		lightning.program("lightning-cli", "backbone_image_classifier by LightningCLI",
			"examples/pytorch/basics/backbone_image_classifier.py", "--trainer.max_epochs=50"),
		geometric.program("pyg-gcn", "a graph convolutional network", "examples/gcn.py", ""),
		checkout{"yolov5", "ultralytics/yolov5", "5081342f"}.program("yolov5", "YOLOv5s from scratch",
			"train.py", "--weights= --cfg yolov5s.yaml --data boxes.yaml --batch-size 16 "+
				"--workers 1 --project out"),
		checkout{"fasterrcnn", "sovit-123/fasterrcnn-pytorch-training-pipeline", "e7f2a3b"}.program(
			"fasterrcnn", "Faster R-CNN with ResNet-50 and FPN v2", "train.py",
			"--data voc.yaml --batch 4 --workers 1 --disable-wandb --project-dir out"),
		checkout{"DiT", "facebookresearch/DiT", "ed81ce22"}.program("dit", "DiT-XL/2", "train.py",
			"--data-path img/train --global-batch-size 32 --num-workers 1 --results-dir out").under(1).
			onCards(),
		hydra.program("hydra-mnist", "Lightning by Hydra", "src/train.py", "trainer=gpu"),
		lightning.program("fabric-image-classifier", "fabric/image_classifier",
			"examples/fabric/image_classifier/train_fabric.py", ""),
		lightning.program("fabric-language-model", "fabric/language_model",
			"examples/fabric/language_model/train.py", ""),
	},

	"huggingface": {
		transformers.program("run_glue", "BERT", "examples/pytorch/text-classification/run_glue.py",
			"--model_name_or_path bert --train_file pairs.json --validation_file pairs.json --do_train "+
				"--do_eval --max_seq_length 128 --per_device_train_batch_size 32 --output_dir out").onCards(),
		transformers.program("run_mlm", "RoBERTa", languageModeling+"run_mlm.py", "--model_type roberta "+
			"--tokenizer_name bert --config_overrides max_position_embeddings=514 --train_file input.txt "+
			"--line_by_line --pad_to_max_length --do_train "+
			"--per_device_train_batch_size 8 --max_seq_length 512 --output_dir out"),
		transformers.program("run_clm", "GPT-2", languageModeling+"run_clm.py", "--model_type gpt2 "+
			"--tokenizer_name gpt2 --train_file input.txt --do_train --block_size 1024 "+
			"--per_device_train_batch_size 4 --bf16 --output_dir out"),
		transformers.program("run_clm-ddp", "GPT-2, two ranks", languageModeling+"run_clm.py",
			"--model_type gpt2 --tokenizer_name gpt2 --train_file input.txt --do_train --block_size 1024 "+
				"--per_device_train_batch_size 4 --bf16 --output_dir out").under(2),
		transformers.program("run_clm-evaluated", "GPT-2, evaluated and saved after each step",
			languageModeling+"run_clm.py", "--model_type gpt2 --tokenizer_name gpt2 "+
				"--train_file input.txt --do_train --block_size 1024 --per_device_train_batch_size 4 --bf16 "+
				"--do_eval --per_device_eval_batch_size 8 --max_eval_samples 16 --logging_steps 1 "+
				"--eval_strategy steps --eval_steps 1 --save_steps 1 --load_best_model_at_end "+
				"--output_dir out"),
		transformers.program("run_clm-fsdp2", "Llama of 6.7 billion parameters, FSDP2 of 8",
			languageModeling+"run_clm.py", "--model_type llama --tokenizer_name gpt2-letters "+
				"--train_file input.txt --do_train --block_size 2048 --per_device_train_batch_size 1 "+
				"--bf16 --fsdp --fsdp_config fsdp.json --output_dir out").
			with("--world-size 8").onCards(),
		transformers.program("run_ner", "BERT for token classification",
			"examples/pytorch/token-classification/run_ner.py", "--model_name_or_path bert --train_file "+
				"tagged.json --validation_file tagged.json --do_train --do_eval "+
				"--per_device_train_batch_size 32 --ignore_mismatched_sizes --output_dir out"),
		sentences.program("sentence-transformers", "training_stsbenchmark, DistilBERT",
			"examples/sentence_transformer/training/sts/training_stsbenchmark.py", ""),
		transformers.program("run_image_classification", "ViT-B/16",
			"examples/pytorch/image-classification/run_image_classification.py", "--model_name_or_path vit "+
				"--train_dir img/train --validation_dir img/val --do_train "+
				"--per_device_train_batch_size 32 --remove_unused_columns False --output_dir out"),
		transformers.program("run_generation", "GPT-2, which generates 200 tokens",
			"examples/pytorch/text-generation/run_generation.py",
			"--model_type gpt2 --model_name_or_path gpt2-letters --prompt w1 --length 200"),
		accelerate.program("accelerate-nlp", "nlp_example", "examples/nlp_example.py",
			"--mixed_precision bf16").onCards(),
		accelerate.program("accelerate-cv", "cv_example", "examples/cv_example.py",
			"--data_dir img/train/a --mixed_precision bf16").onCards(),
		trl.program("trl-sft", "SFT", "trl/scripts/sft.py", "--model_name_or_path gpt2 --dataset_name texts "+
			"--per_device_train_batch_size 4 --logging_steps 1 --output_dir out"),
		trl.program("trl-dpo", "DPO", "trl/scripts/dpo.py", "--model_name_or_path gpt2 "+
			"--dataset_name preferences --per_device_train_batch_size 4 --logging_steps 1 --output_dir out"),
		peft.program("peft-sft", "sft, LoRA on a Llama of 1.2 billion parameters", "examples/sft/train.py",
			loraOnLlama),
		peft.program("peft-qlora", "the same with weights of 4 bits by bitsandbytes", "examples/sft/train.py",
			loraOnLlama+" --use_4bit_quantization True --bnb_4bit_compute_dtype bfloat16 "+
				"--use_nested_quant True"),
		trl.program("trl-grpo", "GRPO, Llama of 1.2 billion parameters", "trl/scripts/grpo.py",
			"--model_name_or_path llama --dataset_name prompts --reward_funcs accuracy_reward "+
				"--max_completion_length 64 --per_device_train_batch_size 8 --logging_steps 1 "+
				"--output_dir out"),
	},

	"large": {
		torchtitan.program("titan-8b", "Llama 3 8B, FSDP2 of 8 ranks", "-m torchtitan.train",
			"--module llama3 --config llama3_8b --hf-assets-path gpt2").with("--world-size 8").
			from("torchtitan").onCards(),
		torchtitan.program("titan-70b", "Llama 3 70B, FSDP2 of 64 ranks", "-m torchtitan.train",
			"--module llama3 --config llama3_70b --hf-assets-path gpt2 "+
				"--parallelism.tensor-parallel-degree 1 "+
				"--training.num-tokens-per-microbatch-per-dp-rank 8192").with("--world-size 64").
			from("torchtitan").onCards(),
		lightning.program("lightning-tensor-parallel",
			"pytorch/tensor_parallel, 6.7 billion parameters, FSDP2 of 2 by tensor parallelism of 2",
			"examples/pytorch/tensor_parallel/train.py", "").with("--world-size 4").onCards(),
	},
}

// order is the order of the groups.
var order = []string{"examples", "scripts", "huggingface", "large"}

// all are the programs of all groups.
func all() (programs []program) {
	for _, g := range order {
		programs = append(programs, groups[g]...)
	}
	return programs
}

// words are the arguments of gmemtop estimate that run a program: of the folder of sources, and with the data
// that were made up.
func (p *program) words(python, sources, data string) []string {
	argv := strings.Fields(p.flags)
	argv = append(argv, "--", python)
	if p.ranks > 0 {
		argv = append(argv, "-m", "torch.distributed.run", "--nproc-per-node", itoa(p.ranks))
	}
	if p.folder == "" {
		return append(append(argv, p.script), strings.Fields(p.args)...)
	}
	argv = append(argv, "scripts/estimates/made_up.py", "run", data)
	if module, ok := strings.CutPrefix(p.script, "-m "); ok {
		argv = append(argv, "-m", module)
	} else {
		argv = append(argv, sources+"/"+p.folder+"/"+p.script)
	}
	return append(argv, strings.Fields(p.args)...)
}
