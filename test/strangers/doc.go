// Package strangers dials servers from Debian's packages that have never heard of SDP and
// watch what comes first, and holds their logs to what they are with package net.
package strangers
