//go:build !race

package usdt

const raceDetector = false
