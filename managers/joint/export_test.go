package joint

// What the tests beside this package, which need managers that import it, share with those in it.
var (
	Network = network
	Serial  = serial
)
