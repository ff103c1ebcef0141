# The frame of every page.
skip-to-content = Skip to content
nav-label = Pages
nav-race = The race
nav-shop = Shop
nav-lab = Lab
nav-orders = Orders
nav-account = Account
nav-admin = Admin
nav-hood = Under the hood
nav-audit = Audit
nav-locks = Locks
nav-jobs = Jobs
nav-basket = Basket
nav-sign-in = Sign in
nav-sign-out = Sign out
footer-api = The API
footer-language = Language
