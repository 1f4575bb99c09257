"""The subcommands: each module's `main(arguments)` reads its flags and calls the rest of the package."""
