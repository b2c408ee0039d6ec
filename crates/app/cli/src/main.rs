fn main() -> std::process::ExitCode {
    eyas_cli::main()
}
