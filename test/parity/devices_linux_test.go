package parity

// devices are those that the scripts run over, beside package net.
var devices = []string{"shm", "iwarp"}
