from smoothcert.cli import main

main()
