package sim

import (
	"context"
	"fmt"
)

// online simulates a plan whose memory an online allocator serves: the allocator runs on the host, in program order.
func (r *run) online(ctx context.Context) error {
	return fmt.Errorf("simulate: no emulation of the allocator %q", r.pl.Policy.Name)
}
