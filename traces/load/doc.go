// Package load opens any supported trace: a file, standard input, or a folder with one trace for each rank.
// Only this package knows all readers. It recognises a file by its content, never by its name or extension.
//
// A file goes through four steps: look for a cached decoded copy (cache.go); unpack gzip, zstd or zip within
// limits (unpack.go); recognise the format by its first bytes (formats.go); read. For damaged input it
// returns the sound part with the error, as the readers do.
package load
