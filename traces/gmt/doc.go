// Package gmt reads, writes and repairs gmemtop's native file: a standard Apache Arrow IPC stream that holds
// everything of a [traces.Trace] without loss, grows by appending while a process is recorded, and is read by
// pandas, polars and DuckDB without this code.
//
// # The problem
//
// A recorder may die at any moment, and then at most the last chunk may be lost; a viewer must open a million
// events before the user has released the key; and the file should not be yet another private format.
//
// # The solution
//
// One Arrow schema of eleven plain columns serves all batches, since a stream allows only one. A row's kind
// says what it is: below 100 an event (its number is the [traces.Action]), from 100 another record (op,
// access, mark, sample, segment, block), from 200 a definition (string, frame, stack...). Definitions have no
// id column: the n-th row of a kind defines id n, which costs nothing and cannot contradict itself. A batch
// is all definitions, all events or all other records, and definitions precede their first use. Columns hold
// absolute values, and each buffer is compressed with zstd on its own (RFC 8878), as the Arrow columnar
// format's section on IPC describes (https://arrow.apache.org/docs/format/Columnar.html).
//
// Each message carries, in the custom metadata that Arrow leaves to applications, a crc32c of itself and how
// many rows of every table precede it. So a flipped bit is found, a damaged chunk can be skipped, the number
// of rows lost is known, and every later id keeps its meaning. Each message is one Write call; eight bytes
// mark a clean end.
//
// Reading is one pass over the message headers, which finds the exact number of events; the columns are then
// allocated once and the buffers decompressed straight into them by several goroutines: O(bytes) time, no
// copy.
//
// # Rejected
//
// Arrow dictionaries with deltas (polars cannot read them); delta-coded times and addresses (smaller on
// microsecond clocks, larger on nanosecond ones, unreadable for others); Parquet (its footer is written last,
// so a killed recorder loses the file); arrow-go in the program (its reader does not verify what it
// decompresses; tests use it as the oracle, in their own module); one row of folded text per stack (measured
// larger than frame ids, and not exact).
//
// docs/format.md describes the file for its users.
package gmt
