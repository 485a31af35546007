package main

import "context"

// missing lists what cannot be reproduced.
func missing(_ *bench, _ context.Context, p *page) error {
	p.table([]string{"claim", "because"}, [][]string{
		{"SmartPool: 13.3 % below CnMem",
			"neither the recording nor the per-network tables are public; the ceiling that the public " +
				"recordings allow is above"},
		{"SmartPool: \"equal time complexity\" on a device",
			"measured on a device with a library of 2018; not simulated"},
		{"AutoSwap: 34.2 % without overhead",
			"network and limit are not public; the public curves of VGG give the figure above, and are " +
				"reproduced figure by figure"},
		{"AutoSwap: per-network tables, GPU",
			"we did not have the paper's text, and its repositories do not have them"},
		{"vDNN: 89, 91 and 95 %; 18 % loss",
			"in-house framework; workspaces of cuDNN 4 and which of them the baseline counts are not " +
				"public, hence the ceiling and the band above"},
		{"tvDNN: \"a few GB\", \"without significant degradation\"",
			"no figures, GPU, section size or code in public"},
		{"DELTA: 40 to 70 %, 2.04x, 2.25x",
			"GPU and the speed at those batches were not found; the public branch copies synchronously, so " +
				"it cannot show the overlap"},
		{"HOME: 5.7x, 1.3x, 2.8x", "models, batch sizes, GPU and the method's internals are not public"},
		{"Capuchin, Checkmate, DTR and others: their headlines",
			"planned here only as rivals; their experiments are not reproduced"},
		{"any step time on a device", "everything on this page is simulated"},
	})
	return nil
}
