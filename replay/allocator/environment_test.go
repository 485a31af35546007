package allocator

import (
	"strings"
	"testing"
)

func TestEachReleaseReadsItsOwnVariables(t *testing.T) {
	for _, c := range []struct{ torch, environment, want string }{
		{"2.6.0", "PYTORCH_ALLOC_CONF=a:1", ""},
		{"2.9.1", "PYTORCH_ALLOC_CONF=a:1", ""},
		{"2.9.1", "PYTORCH_ALLOC_CONF=a:1 PYTORCH_CUDA_ALLOC_CONF=b:1", "PYTORCH_CUDA_ALLOC_CONF b:1"},
		{"2.10.0", "PYTORCH_ALLOC_CONF=a:1", "PYTORCH_ALLOC_CONF a:1"},
		{"2.15.0+cu132", "PYTORCH_ALLOC_CONF=a:1 PYTORCH_CUDA_ALLOC_CONF=b:1", "PYTORCH_CUDA_ALLOC_CONF b:1"},
		{"2.15.0+cu132", "PYTORCH_ALLOC_CONF=a:1 PYTORCH_CUDA_ALLOC_CONF=", "PYTORCH_CUDA_ALLOC_CONF"},
		{"2.15.0", "", ""},
	} {
		torch, err := ParseVersion(c.torch)
		if err != nil {
			t.Fatal(err)
		}
		set := map[string]string{}
		for _, word := range strings.Fields(c.environment) {
			name, value, _ := strings.Cut(word, "=")
			set[name] = value
		}
		name, value := EnvironmentConf(torch, func(name string) (string, bool) {
			value, found := set[name]
			return value, found
		})
		if got := strings.TrimSpace(name + " " + value); got != c.want {
			t.Errorf("torch %s with %q: %q, want %q", c.torch, c.environment, got, c.want)
		}
	}
}
