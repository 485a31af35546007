package allocator

// Which environment variable configures PyTorch's allocator, in one place.
//
//	torch       PYTORCH_CUDA_ALLOC_CONF   PYTORCH_ALLOC_CONF
//	up to 2.9   read                      not read
//	from 2.10   read first                read if the other is not set
//
// A variable that is set and empty counts as set. Source: torch's header c10/cuda/CUDAAllocatorConfig.h in
// 2.6, 2.7, 2.9, 2.10, 2.11, 2.13 and 2.15.

const (
	cudaConf = "PYTORCH_CUDA_ALLOC_CONF"
	conf     = "PYTORCH_ALLOC_CONF"
)

// readsBoth is the first release that reads PYTORCH_ALLOC_CONF for CUDA.
var readsBoth = Version{2, 10}

// EnvironmentConf returns the variable that configures a PyTorch release's CUDA allocator, and its value in
// an environment; both are "" if the allocator is left at its defaults. The zero Version follows the newest
// releases.
func EnvironmentConf(torch Version, lookup func(name string) (string, bool)) (name, value string) {
	names := []string{cudaConf, conf}
	if torch != (Version{}) && torch.Before(readsBoth) {
		names = names[:1]
	}
	for _, name := range names {
		if value, set := lookup(name); set {
			return name, value
		}
	}
	return "", ""
}
