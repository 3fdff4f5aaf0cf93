"""Email addresses: one check for the API, the commands and the mails."""

_PRIVATE = "local"
"""A top-level name that many private networks use, which the library reserves."""


def checked_address(email: str) -> tuple[str, str]:
    """Return an address in its normal form, in ASCII if possible (spec 2.1).

    Raises:
        ValueError: It is not a valid address; the text says why.
    """
    import email_validator

    if _PRIVATE in email_validator.SPECIAL_USE_DOMAIN_NAMES:
        email_validator.SPECIAL_USE_DOMAIN_NAMES.remove(_PRIVATE)
    found = email_validator.validate_email(email, check_deliverability=False, strict=True)
    return found.normalized, found.ascii_email or found.normalized
