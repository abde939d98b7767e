"""Three plans on the same noise, at the cost of the most expensive one, and the page that shows them."""

import smoothcert as sc

plans = sc.Combined(
    (
        sc.Fixed(2_000),
        sc.InputSpecific(2_000, decline=0.05),
        sc.InputSpecific(2_000, decline=0.1, kind="relative"),
    )
)
run = sc.certify(
    "fashion-cnn", "fashion-mnist", noise=sc.Gaussian(0.25), plan=plans, limit=10, out="runs/plans"
)
each = run.split()
print(sc.table(each).render())
sc.write_report(each, "plans.html")
