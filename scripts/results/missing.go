package main

import "context"

// missing lists what cannot be reproduced.
func (b *bench) missing(_ context.Context, p *page) error {
	p.heading(2, "Not reproducible, because")
	p.table([]string{"claim", "because"}, [][]string{
		{"SmartPool: 13.3 % below CnMem", "the recording behind it is not public, nor the per-network tables; the ceiling that the public recordings allow stands above"},
		{"SmartPool: \"equal time complexity\" on a device", "a figure of a device and a library of 2018; not simulated"},
		{"AutoSwap: 34.2 % without overhead", "network and limit are not public; the public curves of VGG give what stands above, and are reproduced figure by figure"},
		{"AutoSwap: per-network tables, GPU", "the paper's text was not at hand, and its repositories do not have them"},
		{"vDNN: 89, 91 and 95 %; 18 % loss", "in-house framework; workspaces of cuDNN 4 and which of them the baseline counts are not public, hence the ceiling and the band above"},
		{"tvDNN: \"a few GB\", \"without significant degradation\"", "no figures, GPU, section size or code in public"},
		{"DELTA: 40 to 70 %, 2.04x, 2.25x", "GPU and the speed at those batches were not found; the public branch copies synchronously, so it cannot show the overlap"},
		{"HOME: 5.7x, 1.3x, 2.8x", "models, batch sizes, GPU and the method's internals are not public"},
		{"Capuchin, Checkmate, DTR and others: their headlines", "planned here as rivals only; their set-ups are not set up"},
		{"any step time on a device", "everything on this page is simulated"},
	})
	return nil
}
