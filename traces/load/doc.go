// Package load opens any supported trace: a file, standard input, or a folder of one trace a rank. It is the
// one place that knows all readers. What a file is, its content tells; names and extensions are never looked
// at for that.
//
// A file goes through four steps: is a decoded copy cached (cache.go); unpack gzip, zstd or zip within limits
// (unpack.go); recognise the format by its first bytes (formats.go); read. Damaged input gives what was sound
// together with the error, as the readers do.
package load
