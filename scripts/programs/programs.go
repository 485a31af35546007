package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// program is a program that people run: what it is, what it needs, and the script in cases that builds it.
type program struct {
	name, what string
	needs      string // packages, or SOURCES/ and a script; separated by spaces
	args       []string
}

func hf(name, what, args string, needs ...string) program {
	return program{name, what, strings.Join(append(needs, "transformers", "accelerate"), " "),
		append([]string{cases + "/hf.py"}, strings.Fields(args)...)}
}

func loop(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/loop.py"}, strings.Fields(args)...)}
}

func fit(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/fit.py"}, strings.Fields(args)...)}
}

func more(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/more.py"}, strings.Fields(args)...)}
}

func science(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/science.py"}, strings.Fields(args)...)}
}

func wider(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/wider.py"}, strings.Fields(args)...)}
}

func newer(name, what, args, needs string) program {
	return program{name, what, needs, append([]string{cases + "/newer.py"}, strings.Fields(args)...)}
}

func theirs(name, what, args string, needs ...string) program {
	fields := strings.Fields(args)
	return program{name, what, strings.Join(append(needs, fields[0]), " "),
		append([]string{cases + "/theirs.py"}, fields...)}
}

var programs = []program{
	hf("hf-gpt2", "Hugging Face Trainer, GPT-2, 12 layers", "gpt2"),
	hf("hf-llama", "Hugging Face Trainer, LLaMA, 16 layers", "llama"),
	hf("hf-bert", "Hugging Face Trainer, BERT, 12 layers", "bert"),
	hf("hf-t5", "Hugging Face Trainer, T5, 8 + 8 layers", "t5"),
	hf("hf-vit", "Hugging Face Trainer, ViT, 12 layers", "vit --batch 4"),
	hf("hf-whisper", "Hugging Face Trainer, Whisper, 6 + 6 layers", "whisper"),
	hf("hf-gpt2-accumulate", "the same GPT-2, 2 micro-batches a step", "gpt2 --accumulate 2"),
	hf("hf-gpt2-checkpointing", "the same GPT-2, gradient_checkpointing", "gpt2 --checkpointing"),
	hf("hf-gpt2-bf16", "the same GPT-2, bf16 autocast", "gpt2 --bf16"),
	hf("hf-gpt2-compile", "the same GPT-2, torch.compile", "gpt2 --compile"),
	hf("hf-gpt2-padded", "the same GPT-2, padding that varies", "padded --batch 2"),
	hf("hf-t5-padded", "Hugging Face Seq2SeqTrainer, that T5, documents and summaries of any length",
		"summaries --batch 2"),
	hf("hf-mixtral", "Hugging Face Trainer, Mixtral, 8 layers of 4 experts", "mixtral --batch 2"),
	hf("hf-deberta", "Hugging Face Trainer, DeBERTa v3, 8 layers", "deberta"),
	hf("hf-mamba", "Hugging Face Trainer, Mamba, 6 layers, its scan in Python", "mamba"),
	hf("hf-wav2vec2", "Hugging Face Trainer, wav2vec2 with CTC, 8 layers", "wav2vec2 --batch 4"),
	hf("hf-clip", "Hugging Face Trainer, CLIP, two towers of 8 layers", "clip --batch 4"),
	hf("peft-prefix", "peft, prefix tuning on that GPT-2, Hugging Face Trainer", "prefix --batch 2", "peft"),
	hf("hf-gpt2-busy", "the same GPT-2 with two workers, evaluations and checkpoints", "gpt2 --busy"),
	hf("peft-lora", "peft, LoRA on that LLaMA, Hugging Face Trainer", "lora", "peft"),
	{"trl-sft", "TRL's script for fine-tuning, LLaMA, which checkpoints its layers", "trl datasets",
		append([]string{cases + "/sft.py", "PACKAGES/trl/scripts/sft.py"},
			strings.Fields("--model_name_or_path model --dataset_name data --use_cpu --output_dir out "+
				"--per_device_train_batch_size 2 --report_to none --save_strategy no --max_length 128")...)},
	loop("accelerate-gpt2", "accelerate with accumulation, clipping, GPT-2", "accelerate",
		"accelerate transformers"),
	{"lightning", "Lightning, one optimizer, convolutions", "lightning",
		[]string{cases + "/lightning_net.py", "one"}},
	{"lightning-gan", "Lightning, two optimizers, manual optimization", "lightning",
		[]string{cases + "/lightning_net.py", "several"}},
	loop("timm-vit-ema", "timm, ViT tiny with EMA, mixup and stochastic depth", "timm_ema", "timm"),
	loop("timm-convnext", "timm, ConvNeXt", "timm_convnext", "timm"),
	theirs("timm-train", "timm's train.py, ResNet-26 with its augmentations, EMA and checkpoints",
		"SOURCES/pytorch-image-models/train.py --data-dir pictures --model resnet26 --num-classes 2 "+
			"--img-size 96 -b 8 -j 1 --device cpu --epochs 100000 --model-ema --mixup 0.2 --seed 0 "+
			"--model-kwargs channels=(16,32,64,128)", "timm"),
	loop("torchvision-resnet50", "torchvision, ResNet-50", "torchvision_resnet", "torchvision"),
	loop("torchvision-fcos", "torchvision detection, FCOS on ResNet-50", "torchvision_detection",
		"torchvision"),
	theirs("nanogpt", "nanoGPT's train.py, 12 layers, 2 micro-batches, dropout", "SOURCES/nanoGPT/train.py "+
		"--dataset=tokens --device=cpu --dtype=float32 --compile=False --eval_iters=1 "+
		"--eval_interval=1000000 --n_layer=12 --n_head=6 --n_embd=96 --block_size=256 --batch_size=1 "+
		"--gradient_accumulation_steps=2 --dropout=0.1"),
	theirs("examples-mnist", "PyTorch's examples, mnist", "SOURCES/examples/mnist/main.py --batch-size 256",
		"torchvision"),
	theirs("examples-vae", "PyTorch's examples, vae", "SOURCES/examples/vae/main.py --batch-size 4096 "+
		"--epochs 100000",
		"torchvision"),
	theirs("examples-imagenet", "PyTorch's examples, imagenet, ResNet-18",
		"SOURCES/examples/imagenet/main.py --dummy -b 8 -j 0 -a resnet18 --seed 0", "torchvision"),
	theirs("examples-dcgan", "PyTorch's examples, dcgan", "SOURCES/examples/dcgan/main.py --dataset fake "+
		"--batchSize 16 --ngf 16 --ndf 16 --workers 0 --niter 100000 --manualSeed 0", "torchvision"),
	theirs("examples-lstm", "PyTorch's examples, word_language_model, LSTM", "SOURCES/examples/"+
		"word_language_model/main.py --data words --nhid 64 --emsize 64 --batch_size 128 --bptt 64 "+
		"--use-optimizer"),
	theirs("examples-transformer", "PyTorch's examples, word_language_model, transformer",
		"SOURCES/examples/word_language_model/main.py --data words --model Transformer --nhid 128 "+
			"--emsize 64 --nlayers 6 "+
			"--batch_size 64 --bptt 64 --use-optimizer"),
	theirs("examples-siamese", "PyTorch's examples, siamese_network: ResNet-18 on pairs of images",
		"SOURCES/examples/siamese_network/main.py --batch-size 128 --no-accel", "torchvision"),
	theirs("examples-time-sequence", "PyTorch's examples, time_sequence_prediction: LSTM cells, LBFGS",
		"SOURCES/examples/time_sequence_prediction/train.py --steps 100000", "matplotlib"),
	theirs("examples-forward-forward", "PyTorch's examples, mnist_forward_forward: a backward in each layer",
		"SOURCES/examples/mnist_forward_forward/main.py --no_accel --train_size 500 --epochs 100000",
		"torchvision"),
	theirs("examples-gat", "PyTorch's examples, gat: attention on a graph as a dense matrix",
		"SOURCES/examples/gat/main.py --no-accel --num-heads 2 --hidden-dim 16 --epochs 100000", "requests"),
	theirs("examples-super-resolution", "PyTorch's examples, super_resolution: a new evaluation each epoch",
		"SOURCES/examples/super_resolution/main.py --upscale_factor 4 --batchSize 2 --threads 0 "+
			"--nEpochs 100000", "torchvision six"),
	theirs("examples-mnist-rnn", "PyTorch's examples, mnist_rnn: an LSTM",
		"SOURCES/examples/mnist_rnn/main.py --batch-size 512", "torchvision"),
	theirs("examples-style", "PyTorch's examples, fast_neural_style: a frozen VGG-16 in the loss",
		"SOURCES/examples/fast_neural_style/neural_style/neural_style.py train --dataset pictures "+
			"--style-image style.png --save-model-dir out --image-size 64 --style-size 64 --batch-size 2 "+
			"--epochs 100000", "torchvision"),
	theirs("mingpt", "minGPT's chargpt.py, 4 layers, its loader's four processes",
		"SOURCES/minGPT/projects/chargpt/chargpt.py --model.model_type=gpt-micro --trainer.batch_size=16"),
	theirs("makemore", "makemore.py, a transformer of 12 layers on names",
		"SOURCES/makemore/makemore.py --n-layer 12 -b 32 -n 1"),
	theirs("llama2c", "llama2.c's train.py, a LLaMA of 12 layers, 2 micro-batches",
		"SOURCES/llama2.c/train.py --device=cpu --compile=False --dtype=float32 --vocab_source=custom "+
			"--vocab_size=500 --dim=96 --n_layers=12 --batch_size=4 --max_seq_len=128 "+
			"--gradient_accumulation_steps=2 --eval_iters=1", "sentencepiece"),
	theirs("sam", "the example of davda54/sam: each step climbs, and runs its batch again from there",
		"SOURCES/sam/example/train.py --depth 10 --width_factor 2 --batch_size 32 --threads 1",
		"torchvision"),
	theirs("wgan-gp", "PyTorch-GAN's wgan_gp.py: a gradient of a gradient, a generator's step in five",
		"SOURCES/PyTorch-GAN/implementations/wgan_gp/wgan_gp.py --batch_size 512 --n_epochs 100000 "+
			"--sample_interval 1000000", "torchvision"),
	theirs("cyclegan", "PyTorch-GAN's cyclegan.py: three optimizers, earlier pictures in a buffer",
		"SOURCES/PyTorch-GAN/implementations/cyclegan/cyclegan.py --img_height 48 --img_width 48 "+
			"--n_residual_blocks 3 --n_cpu 1 --sample_interval 1000000 --n_epochs 100000", "torchvision"),
	theirs("unet", "Pytorch-UNet's train.py: RMSprop, clipping, an evaluation every other step",
		"SOURCES/Pytorch-UNet/train.py -s 0.25 -b 2 -e 100000", "torchvision"),
	theirs("cleanrl-sac", "CleanRL's sac_continuous_action.py: three optimizers that take turns",
		"SOURCES/cleanrl/cleanrl/sac_continuous_action.py --env-id Pendulum-v1 --learning-starts 300 "+
			"--batch-size 4096", "gymnasium stable_baselines3 tyro"),
	theirs("actor-critic", "PyTorch's examples, reinforcement_learning: a step for each game, each of "+
		"another length", "SOURCES/examples/reinforcement_learning/actor_critic.py", "gymnasium"),
	loop("denoising", "denoising_diffusion_pytorch's Trainer, 2 micro-batches, its average of weights",
		"denoising", "denoising_diffusion_pytorch"),
	loop("pyg", "PyTorch Geometric, a GAT of 3 layers on batches of graphs", "pyg", "torch_geometric"),
	{"lightning-transformer", "Lightning's own demo, a transformer, clipping, 2 micro-batches, its Trainer",
		"lightning", []string{cases + "/lightning_net.py", "demo"}},
	fit("skorch", "skorch's classifier, convolutions, evaluated after each epoch", "skorch", "skorch"),
	fit("fastai", "fastai's Learner with its own optimizer, convolutions", "fastai", "fastai"),
	fit("keras", "Keras on its torch backend, with its own optimizer, convolutions", "keras", "keras"),
	fit("segmentation", "segmentation_models_pytorch, UNet on ResNet-18, Dice loss", "segmentation",
		"segmentation_models_pytorch"),
	fit("monai", "MONAI, 3D UNet, evaluated by sliding windows", "monai", "monai"),
	fit("ppo", "stable-baselines3, PPO on a made-up environment", "ppo", "stable_baselines3 gymnasium"),
	fit("gpytorch", "GPyTorch, an exact Gaussian process", "process", "gpytorch"),
	fit("pyro", "Pyro, a variational autoencoder by SVI, with an optimizer for each parameter", "pyro",
		"pyro"),
	fit("sentence-transformers", "sentence-transformers' Trainer, BERT of 12 layers, its loss of pairs",
		"sentences", "sentence_transformers datasets"),
	fit("ignite", "Ignite's trainer and evaluator, convolutions", "ignite", "ignite"),
	fit("tabnet", "pytorch-tabnet's classifier, 5 steps of attention on a table", "tabnet",
		"pytorch_tabnet"),
	fit("metric-learning", "pytorch-metric-learning's trainer, ResNet-18, its miner and its sampler",
		"metric", "pytorch_metric_learning torchvision"),
	fit("neuralforecast", "neuralforecast, NHITS on made-up series, trained by Lightning", "forecast",
		"neuralforecast"),
	fit("yolo", "Ultralytics' trainer, YOLOv8n with its augmentations, its average of weights", "yolo",
		"ultralytics"),
	more("trl-dpo", "TRL's DPOTrainer on LLaMA, a frozen reference beside it, 2 micro-batches", "dpo",
		"trl datasets"),
	more("diffusers", "diffusers' tutorial, a UNet, accelerate with 2 micro-batches, its average of weights",
		"diffusion", "diffusers accelerate"),
	more("opacus", "Opacus, convolutions with a gradient for each example, clipped and noised", "privacy",
		"opacus"),
	more("torchdiffeq", "torchdiffeq, an ODE between convolutions by its adjoint", "adjoint", "torchdiffeq"),
	more("vector-quantize", "vector_quantize_pytorch, an autoencoder whose codes are averages", "codebook",
		"vector_quantize_pytorch"),
	more("pytorch-forecasting", "pytorch-forecasting, its temporal fusion transformer, by Lightning",
		"forecasting", "pytorch_forecasting lightning"),
	more("lightly", "lightly, MoCo on a narrow ResNet, with its queue", "contrast", "lightly torchvision"),
	science("vit-pytorch", "vit-pytorch, CaiT of 8 layers, some dropped at random", "patches", "vit_pytorch"),
	science("snntorch", "snnTorch's tutorial, leaky neurons over 25 time steps, a loss for each", "spikes",
		"snntorch"),
	science("neuraloperator", "neuraloperator, an FNO of 4 layers, complex tensors", "operator", "neuralop"),
	science("deepxde", "DeepXDE, a network that solves an equation, second derivatives in its loss",
		"equation", "deepxde"),
	science("zuko", "zuko, a normalising flow of splines", "flow", "zuko"),
	science("mamba", "mamba.py, 6 layers, its own autograd function, clipping", "scan", "mambapy"),
	science("open-clip", "open_clip, two towers of 6 layers and its loss", "pairs", "open_clip"),
	science("kornia", "Kornia, its augmentations, convolutions, its focal loss", "augmented", "kornia"),
	science("catalyst", "Catalyst's runner, convolutions", "catalyst", "catalyst"),
	science("perceiver", "perceiver-pytorch, latents that attend to pixels, 4 layers", "latents",
		"perceiver_pytorch"),
	science("torchrl", "TorchRL's loss of PPO, two networks in one module", "policy", "torchrl tensordict"),
	wider("reformer", "reformer-pytorch, 6 layers whose backward pass computes their inputs again",
		"reversible", "reformer_pytorch"),
	wider("byol", "byol-pytorch, two views through a ResNet-18 and through its average", "bootstrap",
		"byol_pytorch torchvision"),
	wider("deepar", "GluonTS's DeepAR, an LSTM, by Lightning", "series", "gluonts lightning"),
	wider("flair", "flair's trainer, a tagger of LSTM and CRF, sentences of any length", "words", "flair"),
	wider("speechbrain", "SpeechBrain's Brain, its CRDNN with CTC, waves of any length", "speech",
		"speechbrain"),
	wider("darts", "Darts' transformer, 6 + 6 layers, by Lightning", "history", "darts lightning"),
	newer("maml", "MAML-Pytorch, four tasks of five steps of gradient descent, and the gradient of all",
		"tasks SOURCES/MAML-Pytorch", "SOURCES/MAML-Pytorch/meta.py"),
	newer("pointnet", "pointnet.pytorch's classifier, with its regularizer of feature transforms",
		"points SOURCES/pointnet.pytorch", "SOURCES/pointnet.pytorch/pointnet/model.py"),
	newer("kan", "pykan's KAN and its own loop, which evaluates after each step", "splines", "kan"),
	newer("graph-gps", "PyTorch Geometric's GPS, attention over whole graphs beside messages", "walks",
		"torch_geometric"),
	newer("td3", "TD3's own class, two critics each step, the actor every other one", "twins SOURCES/TD3",
		"SOURCES/TD3/TD3.py"),
	newer("mask-rcnn", "torchvision, Mask R-CNN on a few convolutions, objects of any number", "masks",
		"torchvision"),
	newer("nerf", "nerf-pytorch's tiny NeRF, its field evaluated piece by piece",
		"radiance SOURCES/nerf-pytorch", "SOURCES/nerf-pytorch/tiny_nerf.py"),
	newer("gin", "PyTorch Geometric's example of GIN, batches of graphs of any size", "isomorphism",
		"torch_geometric"),
	newer("retinanet", "torchvision, RetinaNet on a few convolutions, each image at one of four scales",
		"scales", "torchvision"),
	newer("pyg-topk", "PyTorch Geometric, GraphConv and TopKPooling, batches of graphs of any size",
		"pooled", "torch_geometric"),
	newer("sb3-dqn", "Stable-Baselines3's DQN with convolutions", "baselines", "stable_baselines3 gymnasium"),
	newer("conformer", "torchaudio's Conformer with CTC, 6 layers, features of any length", "conformer",
		"torchaudio"),
	loop("x-transformers", "x-transformers, a decoder of 12 layers with rotary positions", "x_transformers",
		"x_transformers"),
	loop("esm", "fair-esm, ESM-2 of 12 layers on masked residues", "esm", "esm"),
	loop("lstm", "torch, LSTM with packing", "lstm", ""),
	loop("lstm-lengths", "the same, other lengths in each step", "lstm_lengths", ""),
	loop("transformer", "torch, TransformerEncoder, 12 layers, dropout", "transformer", ""),
	loop("transformer-lengths", "the same, on batches of four lengths", "transformer_lengths", ""),
	loop("transformer-bf16", "the same, bf16 autocast", "transformer --bf16", ""),
	loop("transformer-checkpointed", "the same, torch.utils.checkpoint around half of the layers",
		"checkpointed", ""),
	loop("gan", "torch, a GAN whose generator's graph waits for the critic's optimizer", "gan", ""),
	loop("lbfgs", "torch, LBFGS", "lbfgs", ""),
}

// tried are changes to programs that no plan brings down to their budget, each tried by hand, and what came
// of it.
var tried = map[string]string{
	"hf-gpt2-compile": "with torch._functorch.config.activation_memory_budget = 0.7 set before the model " +
		"is compiled, 41.4 MiB are alive at a step's peak",
	"torchdiffeq": "the peak lies in the backward pass, where the adjoint holds states and gradients of " +
		"its own solver that no module saved. With 8 examples a batch instead of 16 a step holds 42.6 MiB",
	"opacus": "Opacus's hooks keep what goes into each layer until its gradients are made, for which " +
		"convolutions are unfolded in the backward pass. With 8 examples a batch instead of 16 a step " +
		"holds 41.6 MiB",
	"gpytorch": "joint kept a budget of 36.0 MiB with 34.4. The rest of the peak is four matrices of " +
		"points by points that the backward pass of one of its functions holds at once. With 1,200 points " +
		"instead of 1,500 a step holds 27.5 MiB",
	"examples-forward-forward": "no budget below 12.0 MiB can be met: one op needs that much beside " +
		"parameters and optimizer state. joint kept a budget of 12.1 MiB with 12.0",
	"examples-gat": "joint kept a budget of 172 MiB with 169.2",
	"unet": "with foreach=False instead of its foreach=True a step holds 546 MiB instead of 711, and joint " +
		"kept a budget of 382 MiB with 381, as predicted",
	"kan": "its loop evaluates after each step with gradients, and its variable test_loss keeps that graph " +
		"until the next evaluation. With torch.no_grad() around it a step holds 16.8 MiB instead of 29.2, " +
		"and joint kept a budget of 11.7 MiB with 11.6",
	"maml": "its loop adds up the losses of all five steps and calls backward on the last one. With " +
		"detach() on the others a step holds 31.0 MiB instead of 93.3, and joint is predicted to need " +
		"20.9 MiB of that",
	"deepxde": "nearly all of a step's memory is made in a backward pass whose result is differentiated " +
		"again. With 1,500 points instead of 3,000 a step holds 31.9 MiB",
	"conformer": "batches of some lengths save fewer tensors than others. With the features of each batch " +
		"padded to 300 frames joint kept a budget of 147 MiB with 145",
	"sb3-dqn": "the peak lies in Adam, which makes two tensors of the largest weight's size, while " +
		"gradients wait. With optimizer_kwargs={\"fused\": True} joint kept a budget of 37.0 MiB with 36.5",
	"examples-mnist-rnn": "the peak is one op, the backward pass of the LSTM. With batches of 256 instead " +
		"of 512 that op, parameters and optimizer state need 79.0 MiB",
	"examples-vae": "the variable recon_batch keeps the last batch's pictures while the next ones are " +
		"made. With del recon_batch, mu, logvar as the last line of the loop, joint kept the budget with " +
		"100.5 MiB",
	"pyg": "on a CPU the data set lies in the memory that is counted, and 14.2 MiB of a step's peak are " +
		"the data set. With two graphs a batch instead of four a step holds 27.1 MiB, and joint, carried " +
		"out for 25.9 MiB, was predicted to need 25.2 and needed 23.0 in the step that was measured",
}

// missing names what a program needs and this machine lacks.
func (o *options) missing(ctx context.Context, p *program) (string, error) {
	var lacks []string
	for _, need := range strings.Fields(p.needs) {
		if rest, ok := strings.CutPrefix(need, "SOURCES/"); ok {
			if _, err := os.Stat(filepath.Join(o.sources, rest)); o.sources == "" || err != nil {
				lacks = append(lacks, rest)
			}
			continue
		}
		const find = "import importlib.util as u, sys; print(u.find_spec(sys.argv[1]) is not None)"
		c := exec.CommandContext(ctx, o.python, "-c", find, need)
		c.Env = append(os.Environ(), "PYTHONPATH="+o.packages)
		out, err := c.Output()
		if err != nil {
			return "", fmt.Errorf("look for %s: %w", need, err)
		}
		if strings.TrimSpace(string(out)) != "True" {
			lacks = append(lacks, need)
		}
	}
	if len(lacks) == 0 {
		return "", nil
	}
	return "needs " + strings.Join(lacks, " and "), nil
}
