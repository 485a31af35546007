// Package report turns a timeline into text and JSON for people and scripts: stats, the out-of-memory
// autopsy, the difference of two recordings. It writes to an io.Writer, knows no terminal and prints no
// escape sequences.
//
// Every report is first a plain value ([Stats], [OOM], [Diff]) whose JSON form is a contract (schema_version
// 2: keys may be added, none renamed). The text form is printed from the same value, so the two can never
// disagree.
package report
