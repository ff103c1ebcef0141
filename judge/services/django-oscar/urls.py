from django.apps import apps
from django.conf import settings
from django.urls import include, path

urlpatterns = [
    path("i18n/", include("django.conf.urls.i18n")),
    path("", include(apps.get_app_config("oscar").urls[0])),
]
if settings.WITH_API:
    urlpatterns.insert(0, path("api/", include("oscarapi.urls")))
