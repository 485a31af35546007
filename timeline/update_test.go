package timeline_test

import "flag"

// update rewrites the expected tables of testdata instead of comparing with them.
var update = flag.Bool("update", false, "rewrite the expected tables of testdata")
