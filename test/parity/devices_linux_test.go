package parity

// devices are the devices that the scripts run over, in addition to package net.
var devices = []string{"shm", "iwarp"}
