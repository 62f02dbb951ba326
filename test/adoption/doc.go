// Package adoption has the tests of "sdp go": programs that know nothing of SDP, built with
// it and run over SDP and over TCP side by side.
//
//   - suites_test.go runs the standard library's own tests, and compares their results name
//     by name with those over TCP. known.json lists the differences that are known, each
//     with its reason. A difference that is not listed fails, and so does one that is gone,
//     unless it depends on timing.
//   - modes_test.go runs the go command in all the ways that people use it.
//   - program_test.go and restart_test.go check what a program sees.
//   - others_test.go does with the tests of other projects what suites_test.go does.
//   - thirdparty_test.go runs programs from the module proxy.
//
// What is a figure, such as a rate or the size of a program, is printed and not judged.
//
// The environment variable GOSDP_ADOPTION chooses: "short" is what a change must pass, "all"
// is everything, for every version of Go that can be had. Without it the tests are skipped.
package adoption
