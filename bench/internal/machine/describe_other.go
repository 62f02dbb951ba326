//go:build !linux

package machine

func kernel() string { return "" }

func processor() string { return "" }
