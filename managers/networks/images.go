package networks

import (
	"fmt"
)

// All returns the networks, the papers' first. The slice is the caller's.
func All() []Network {
	all := []Network{
		{Name: "AlexNet", Summary: "torchvision's variant, one tower without normalisation " +
			"(Krizhevsky 2014), 224 x 224",
			Batches: []int{128, 256}, build: alexNet},
		{Name: "OverFeat", Summary: "the fast model, 231 x 231", Batches: []int{128}, build: overFeat},
		{Name: "GoogLeNet", Summary: "the paper's, with normalisation of responses and without auxiliary " +
			"classifiers, 224 x 224",
			Batches: []int{128}, build: googLeNet},
		{Name: "VGG-16", Summary: "configuration D, 224 x 224", Batches: []int{64, 128, 256},
			build: func(t *layers) {
				vgg(t, 0)
			}},
	}
	for k := 1; k <= 4; k++ {
		all = append(all, Network{Name: fmt.Sprintf("VGG-%d", 16+100*k), Batches: []int{32},
			build: func(t *layers) {
				vgg(t, 20*k)
			},
			Summary: fmt.Sprintf("VGG-16 with %d more convolutions in each of its five groups, after vDNN",
				20*k)})
	}
	return append(all,
		Network{Name: "ResNet-50", Summary: "torchvision's, stride in the 3 x 3 convolution, 224 x 224",
			Batches: []int{64},
			build:   func(t *layers) { resNet(t, 3, 4, 6, 3) }},
		Network{Name: "ResNet-101", Summary: "torchvision's, stride in the 3 x 3 convolution, 224 x 224",
			Batches: []int{64},
			build:   func(t *layers) { resNet(t, 3, 4, 23, 3) }},
		Network{Name: "MobileNet", Summary: "version 1 at full width, 224 x 224 (Howard 2017)",
			Batches: []int{128}, build: mobileNet},
		Network{Name: "U-Net", Summary: "padded and with batch normalisation, as people train it today; " +
			"three channels in and two classes out, 416 x 608",
			Batches: []int{8}, build: uNet},
		Network{Name: "BERT-base", Summary: "12 layers of 768, with the head of masked " +
			"language modelling, tied", Batches: []int{8, 32},
			Sequence: 512, usual: Adam, build: func(t *layers) { bert(t, 12, 768, 12) }},
		Network{Name: "GPT-2 small", Summary: "12 layers of 768, head tied to the embedding",
			Batches:  []int{8},
			Sequence: 1024, usual: Adam, build: func(t *layers) { gpt2(t, 12, 768, 12) }},
		Network{Name: "GPT-2 medium", Summary: "24 layers of 1024, head tied to the embedding",
			Batches:  []int{8},
			Sequence: 1024, usual: Adam, build: func(t *layers) { gpt2(t, 24, 1024, 16) }},
	)
}

// convReLU is a convolution with bias and an activation in place, named after the convolution.
func (t *layers) convReLU(conv, relu string, x *tensor, out, kernel, stride, pad int64) *tensor {
	return t.relu(relu, t.conv(conv, x, out, kernel, stride, pad, true))
}

// alexNet leaves out the adaptive pooling, which does nothing at this size.
func alexNet(t *layers) {
	x := t.images(3, 224, 224)
	x = t.pool("pool1", t.convReLU("conv1", "relu1", x, 64, 11, 4, 2), 3, 2, 0, false)
	x = t.pool("pool2", t.convReLU("conv2", "relu2", x, 192, 5, 1, 2), 3, 2, 0, false)
	x = t.convReLU("conv3", "relu3", x, 384, 3, 1, 1)
	x = t.convReLU("conv4", "relu4", x, 256, 3, 1, 1)
	x = t.pool("pool5", t.convReLU("conv5", "relu5", x, 256, 3, 1, 1), 3, 2, 0, false)
	x = t.relu("relu6", t.linear("fc6", t.dropout("drop6", x), 4096, true, -1))
	x = t.relu("relu7", t.linear("fc7", t.dropout("drop7", x), 4096, true, -1))
	t.loss(t.linear("fc8", x, 1000, true, -1))
}

func overFeat(t *layers) {
	x := t.images(3, 231, 231)
	x = t.pool("pool1", t.convReLU("conv1", "relu1", x, 96, 11, 4, 0), 2, 2, 0, false)
	x = t.pool("pool2", t.convReLU("conv2", "relu2", x, 256, 5, 1, 0), 2, 2, 0, false)
	x = t.convReLU("conv3", "relu3", x, 512, 3, 1, 1)
	x = t.convReLU("conv4", "relu4", x, 1024, 3, 1, 1)
	x = t.pool("pool5", t.convReLU("conv5", "relu5", x, 1024, 3, 1, 1), 2, 2, 0, false)
	x = t.dropout("drop6", t.relu("relu6", t.linear("fc6", x, 3072, true, -1)))
	x = t.dropout("drop7", t.relu("relu7", t.linear("fc7", x, 4096, true, -1)))
	t.loss(t.linear("fc8", x, 1000, true, -1))
}

// vgg is VGG-16 with more convolutions in each group.
func vgg(t *layers, more int) {
	x := t.images(3, 224, 224)
	for g, group := range []struct{ channels, convs int }{{64, 2}, {128, 2}, {256, 3}, {512, 3}, {512, 3}} {
		for i := range group.convs + more {
			x = t.convReLU(fmt.Sprintf("conv%d_%d", g+1, i+1), fmt.Sprintf("relu%d_%d", g+1, i+1), x,
				int64(group.channels), 3, 1, 1)
		}
		x = t.pool(fmt.Sprintf("pool%d", g+1), x, 2, 2, 0, false)
	}
	x = t.dropout("drop6", t.relu("relu6", t.linear("fc6", x, 4096, true, -1)))
	x = t.dropout("drop7", t.relu("relu7", t.linear("fc7", x, 4096, true, -1)))
	t.loss(t.linear("fc8", x, 1000, true, -1))
}

// googLeNet has its sizes from table 1 of the paper (Szegedy 2015).
func googLeNet(t *layers) {
	x := t.images(3, 224, 224)
	x = t.pool("pool1/3x3_s2", t.convReLU("conv1/7x7_s2", "conv1/relu_7x7", x, 64, 7, 2, 3), 3, 2, 0, true)
	x = t.lrn("pool1/norm1", x)
	x = t.convReLU("conv2/3x3_reduce", "conv2/relu_3x3_reduce", x, 64, 1, 1, 0)
	x = t.lrn("conv2/norm2", t.convReLU("conv2/3x3", "conv2/relu_3x3", x, 192, 3, 1, 1))
	x = t.pool("pool2/3x3_s2", x, 3, 2, 0, true)
	x = inception(t, "inception_3a", x, 64, 96, 128, 16, 32, 32)
	x = inception(t, "inception_3b", x, 128, 128, 192, 32, 96, 64)
	x = t.pool("pool3/3x3_s2", x, 3, 2, 0, true)
	x = inception(t, "inception_4a", x, 192, 96, 208, 16, 48, 64)
	x = inception(t, "inception_4b", x, 160, 112, 224, 24, 64, 64)
	x = inception(t, "inception_4c", x, 128, 128, 256, 24, 64, 64)
	x = inception(t, "inception_4d", x, 112, 144, 288, 32, 64, 64)
	x = inception(t, "inception_4e", x, 256, 160, 320, 32, 128, 128)
	x = t.pool("pool4/3x3_s2", x, 3, 2, 0, true)
	x = inception(t, "inception_5a", x, 256, 160, 320, 32, 128, 128)
	x = inception(t, "inception_5b", x, 384, 192, 384, 48, 128, 128)
	x = t.dropout("pool5/drop_7x7_s1", t.average("pool5/7x7_s1", x))
	t.loss(t.linear("loss3/classifier", x, 1000, true, -1))
}

// inception has four branches: 1x1; 1x1 and 3x3; 1x1 and 5x5; pooling and 1x1.
func inception(t *layers, name string, x *tensor, one, reduce3, three, reduce5, five, proj int64) *tensor {
	conv := func(s string, x *tensor, out, kernel int64) *tensor {
		return t.convReLU(name+"/"+s, name+"/relu_"+s, x, out, kernel, 1, kernel/2)
	}
	a := conv("1x1", x, one, 1)
	b := conv("3x3", conv("3x3_reduce", x, reduce3, 1), three, 3)
	c := conv("5x5", conv("5x5_reduce", x, reduce5, 1), five, 5)
	d := conv("pool_proj", t.pool(name+"/pool", x, 3, 1, 1, false), proj, 1)
	return t.concat(name+"/output", a, b, c, d)
}

func resNet(t *layers, blocks ...int) {
	x := t.images(3, 224, 224)
	x = t.relu("relu", t.batchNorm("bn1", t.conv("conv1", x, 64, 7, 2, 3, false)))
	x = t.pool("maxpool", x, 3, 2, 1, false)
	for g, n := range blocks {
		channels := int64(64) << g
		for i := range n {
			stride := int64(1)
			if g > 0 && i == 0 {
				stride = 2
			}
			x = bottleneck(t, fmt.Sprintf("layer%d.%d.", g+1, i), x, channels, stride)
		}
	}
	t.loss(t.linear("fc", t.average("avgpool", x), 1000, true, -1))
}

// bottleneck is torchvision's: its three activations are numbered here, but are one module there.
func bottleneck(t *layers, at string, x *tensor, channels, stride int64) *tensor {
	y := t.relu(at+"relu1", t.batchNorm(at+"bn1", t.conv(at+"conv1", x, channels, 1, 1, 0, false)))
	y = t.relu(at+"relu2", t.batchNorm(at+"bn2", t.conv(at+"conv2", y, channels, 3, stride, 1, false)))
	y = t.batchNorm(at+"bn3", t.conv(at+"conv3", y, 4*channels, 1, 1, 0, false))
	if stride != 1 || x.c != 4*channels {
		x = t.batchNorm(at+"downsample.1", t.conv(at+"downsample.0", x, 4*channels, 1, stride, 0, false))
	}
	return t.relu(at+"relu3", t.add(at+"add", y, x))
}

// convNorm is a convolution without bias, batch normalisation and an activation in place.
func (t *layers) convNorm(at string, x *tensor, out, kernel, stride, groups int64) *tensor {
	y := t.grouped(at+".conv", x, out, kernel, stride, kernel/2, groups, false)
	return t.relu(at+".relu", t.batchNorm(at+".bn", y))
}

// mobileNet has its sizes from table 1 of the paper (Howard 2017).
func mobileNet(t *layers) {
	x := t.convNorm("conv1", t.images(3, 224, 224), 32, 3, 2, 1)
	for i, block := range []struct{ out, stride int64 }{{64, 1}, {128, 2}, {128, 1}, {256, 2}, {256, 1},
		{512, 2}, {512, 1}, {512, 1}, {512, 1}, {512, 1}, {512, 1}, {1024, 2}, {1024, 1}} {
		at := fmt.Sprintf("block%d.", i+1)
		x = t.convNorm(at+"depthwise", x, x.c, 3, block.stride, x.c)
		x = t.convNorm(at+"pointwise", x, block.out, 1, 1, 1)
	}
	t.loss(t.linear("fc", t.average("avgpool", x), 1000, true, -1))
}

// uNet is Ronneberger's (2015) with padded convolutions, so that nothing is cropped: two convolutions at each
// of five sizes, down and up again, where what went down is put beside what comes up.
func uNet(t *layers) {
	const h, w, classes = 416, 608, 2
	double := func(at string, x *tensor, out int64) *tensor {
		return t.convNorm(at+"2", t.convNorm(at+"1", x, out, 3, 1, 1), out, 3, 1, 1)
	}
	x := double("inc.", t.labelled(3, h, w, h*w), 64)
	var left []*tensor
	for i := range 4 {
		left = append(left, x)
		at := fmt.Sprintf("down%d.", i+1)
		x = double(at, t.pool(at+"pool", x, 2, 2, 0, false), 2*x.c)
	}
	for i := range 4 {
		at, skip := fmt.Sprintf("up%d.", i+1), left[3-i]
		x = double(at, t.concat(at+"cat", skip, t.up(at+"up", x, skip.c)), skip.c)
	}
	t.loss(t.conv("outc", x, classes, 1, 1, 0, true))
}
