# Reads the output of `cargo test -- --show-output` and a last line with its exit status. Passes it
# on without the words of tests that passed, adds up its summaries, and leaves with that status.
/^successes:$/ { hidden = 1; next }
/^failures:$/ { hidden = 0 }
/^test result: / {
    hidden = 0
    for (i = 1; i < NF; i++) {
        if ($(i + 1) == "passed;") passed += $i
        if ($(i + 1) == "failed;") failed += $i
        if ($(i + 1) == "ignored;") skipped += $i
    }
}
# A skipped test counts once, however often it says so.
/^---- .* stdout ----$/ { said = 0 }
/^skipped: / {
    if (!hidden || !said) {
        passed--
        skipped++
        print
    }
    said = 1
    next
}
/^cargo test left with / { status = $NF; next }
!hidden { print; fflush() }
END {
    # A binary that crashed or did not build has no summary of its own.
    if (status != 0 && failed == 0) {
        print "a test binary did not build or did not end: see the error above"
        failed = 1
    }
    printf "%d passed, %d failed, %d skipped\n", passed, failed, skipped
    exit status
}
