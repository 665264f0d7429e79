# Reads the output of `cargo test -- --show-output` and of pytest, with a line behind each that has its
# exit status. Passes it on without the words of tests that passed, adds up the summaries, and leaves
# with the first status that is not zero.
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
# pytest: "==== 3 failed, 114 passed, 1 skipped in 85.47s ===="
/^=* ?[0-9]+ [a-z]+.* in [0-9.]+s/ {
    for (i = 1; i < NF; i++) {
        if ($(i + 1) ~ /^passed/) passed += $i
        if ($(i + 1) ~ /^(failed|errors?)/) failed += $i
        if ($(i + 1) ~ /^skipped/) skipped += $i
    }
}
/^(cargo test|pytest) left with / { hidden = 0; if (status == 0) status = $NF; next }
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
